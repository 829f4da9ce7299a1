# shellcheck shell=sh
# Sends every log of a run by byte offset, one session per host; runs after read.sh. Reads acknowledgements from stdin.
#   F <file> <offset> <length> <left>\n<bytes>   P <file> <pid> <start> <time>   X <file> <status> <time>   H <time> <free KiB> <total KiB>
#   left: how many bytes the file has beyond these
#   S <file> <size>   the file is shorter than what was sent: it is sent again from the beginning
#   L <file> <kind> <offset> <least> <most>   bytes are missing, as append.sh recorded; once per offset, and again at the end
#   D <file> <text>   the log is written in a fallback mode, as pipe.sh recorded; once
#   W <word> <name>   something unexpected was ignored; each once
#   W keeper again|missing, W docker silent   the keeper was restarted or could not be, docker does not respond
# An acknowledgement is `<bytes> <frames>`: totals since the start. A batch of frames is sent when at most $window bytes and 256 frames are unacknowledged.
# With once set it prints `E` and ends after sending everything that exists.
# Set before: F (how the paths of the run's files begin), record (a file that exists as long as the run's files do), note (the file that
# says that a follower is attached; empty: none), mark (a file that exists while this script runs and contains $who, the follower; empty: none), once, guards (whether this follower
# ends the gang when a rank fails), window, frame (sizes in bytes), most (the longest that a log can be), ranks (how many the run has; 0: not known), where (the ranks are: container,
# host; empty: their end is not looked for), docker (its words), id (of the container), init, init_start, init_boot (the container's first process or the
# keeper: pid, start, boot id), proven (not empty: that pid is the container's, by its cgroup), run_boot (the boot id in which the run was made; empty:
# not known), beside (the directory of what tasks are given that run on the host beside the container: the container must not speak for them; empty: none), have (` file=offset file=offset `), no_logs (starts and ends alone are wanted: the laptop cannot store logs), shared (not empty: other machines write the files). start_keeper starts another
# keeper.
: "${window:=8388608}" "${frame:=4194304}" "${most:=}" "${once:=}" "${guards:=}" "${where:=}" "${note:=}" "${mark:=}" "${who:=}" "${have:= }" "${record:=}" "${beside:=}"
: "${no_logs:=}" "${shared:=}" "${docker:=docker}" "${id:=}" "${init:=}" "${init_start:=}" "${init_boot:=}" "${proven:=}" "${run_boot:=}"
sent=0 frames=0 batch='' gathered=0 pieces=0 acked=0 acked_frames=0 beat=0 gone='' known=' ' sent_ends=' ' odd=' ' odds=0 lost=' ' unread='' prefix=${F##*/}
node_pid='' node_start='' sized_at='' read_at='' noted='' closed='' pause=0 as_noted='' silent='' missing='' again=0 boot=''
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
unset TIME_STYLE
# absent PATH: whether it certainly does not exist. A path that cannot be read (stale file handle, hanging server) may exist.
absent() {
  if [ -e "$1" ]; then return 1; fi
  case $(LC_ALL=C ls -d -- "$1" 2>&1) in *'No such file'* | *'ot a directory'*) ;; *) return 1 ;; esac
}
cd -P -- "${F%/*}" 2>/dev/null || { if absent "${F%/*}"; then printf 'N\n'; exit 0; fi; ls -d -- "${F%/*}/." >/dev/null; exit 1; }
dir=$(pwd -P)
ack() { read -r acked acked_frames || exit 0; number "$acked" && number "$acked_frames" || exit 0; }
room() { while [ $((sent - acked)) -gt "$window" ] || [ $((frames - acked_frames)) -gt 256 ]; do ack; done; }
# clock: sets t to the seconds since boot; changes of the wall clock do not affect it.
clock() { t=''; { read -r t _ </proc/uptime; } 2>/dev/null; t=${t%%.*}; number "$t" || t=$(date +%s); }
# The keeper reads it, possibly as another user.
# The age of the mark says how long this follower has been silent; it is not made again where a teardown has removed it.
note_attached() {
  clock
  noted=$t
  [ -z "$guards" ] || [ -z "$note" ] || (umask 022; printf '%s\n' "$t" >"$note.new" && mv -f "$note.new" "$note")
  [ -z "$mark" ] || touch -c "$mark" 2>/dev/null
}
# Another operator may remove the run at any time.
run_exists() { [ -e "$record" ] || { ! absent "$record" && unread=1 && warn unreadable "${record##*/}"; }; }
# A teardown waits for followers that have not sent the run's end yet.
remove_mark() { [ -z "$mark" ] || rm -f "$mark"; }
# get MAP WRAPPER: sets v, empty where nothing was put. put MAP WRAPPER VALUE. Each value is a variable of its own, as a look-up in one text
# takes time for each log of the run. The name has passed `wrapper`; the prefix keeps the user's environment out.
variable() {
  case $2 in rank-*) variable=${2#rank-} variable=follow_$1_rank_${variable%.*}_${variable#*.} ;; *) variable=follow_$1_${2%-*}_${2#*-} ;; esac
}
get() { variable "$@"; eval "v=\${$variable-}"; }
put() { variable "$@"; eval "$variable=\$3"; }
warn() { # WORD NAME
  [ "$odds" -lt 8 ] || return 0
  w=$1:$(cleaned "$2")
  case $odd in *" $w "*) ;; *) odd="$odd$w " odds=$((odds + 1)); printf 'W %s %s\n' "$1" "${w#*:}"; [ "$odds" -lt 8 ] || printf 'W more %s*\n' "$prefix" ;; esac
}
# open_logs: where other machines write the logs, a size is true only after the file was opened. Once a second; sized is empty in the rounds between.
# A server that does not answer ends the stream, as in `send`.
open_logs() {
  sized=1
  [ -n "$shared" ] || return 0
  [ -n "$once" ] || [ "$begun" != "$sized_at" ] || { sized=''; return 0; }
  sized_at=$begun
  opens=''
  for b in $names; do case $sent_ends in *" $b "*) ;; *) opens="$opens $prefix$b.log" ;; esac; done
  [ -n "$opens" ] || return 0
  # shellcheck disable=SC2016,SC2086
  within 60 sh -c 'for f do true <"$f"; done' sh $opens 2>/dev/null
  case $? in 124 | 137 | 143) exit 1 ;; esac
}
# A file is opened before its frame begins: one that cannot be opened ends the stream, and the laptop resumes at the last byte that it has.
# Bytes that vanish later are sent as zeros: a frame always has its announced length, even if the file is truncated while it is read.
# dd needs less than half the processes and time of the pipe, and its conv=sync fills up a block that has become shorter. $dd is empty where it lacks
# what this needs.
# shellcheck disable=SC2016
PIECES=$OPENED'd=$1 dd=$2 nl="
"; shift 2
# blocks SIZE SKIP COUNT: sends so many blocks of the file, SKIP bytes after the present position. A read error ends the stream.
blocks() {
  records=$(LC_ALL=C dd bs="$1" skip="$2" count="$3" $dd 2>&1 >&3) || return 1
  records=${records%" records in"*} records=${records##*"$nl"}
  case $records in *[!0123456789+]* | *+*+* | "+"* | *"+") return 1 ;; *+*) ;; *) return 1 ;; esac
  missing=$(($3 - ${records%+*} - ${records#*+}))
  [ "$missing" -eq 0 ] || dd if=/dev/zero bs="$1" count="$missing" >&3
}
while [ $# -ge 5 ]; do
  {
    proper "$1" "$d" || exit 1
    printf "F %s %s %s %s\n" "$2" "$3" "$4" "$5"
    if [ -n "$dd" ]; then
      skip=$3 rest=$(($4 % 65536))
      [ "$4" -lt 65536 ] || { blocks 65536 "$skip" "$(($4 / 65536))" && skip=0; } || exit 1
      [ "$rest" -eq 0 ] || blocks "$rest" "$skip" 1 || exit 1
    else
      { tail -c "+$(($3 + 1))"; head -c "$4" /dev/zero; } | head -c "$4"
    fi
  } 3>&1 2>/dev/null <"$1" || exit 1
  shift 5
done'
dd='iflag=fullblock,skip_bytes conv=sync'
# The dd of uutils counts in the language of the user, and before version 0.6 it reads what it skips.
# shellcheck disable=SC2086
case $(LC_ALL=C dd if=/dev/null of=/dev/null bs=1 $dd 2>&1; dd --version 2>&1 </dev/null) in *uutils*) dd='' ;; '0+0 records in'*) ;; *) dd='' ;; esac
# gather FILE WRAPPER OFFSET LENGTH LEFT: adds a frame to the next batch, at most $window bytes, sent by one shell.
gather() {
  if [ $((gathered + $4)) -gt "$window" ] || [ "$pieces" -ge 64 ]; then send; fi
  batch="$batch $*" gathered=$((gathered + $4)) pieces=$((pieces + 1))
}
# After a timeout the last frame may be too short: the laptop has read nothing for a minute, or a file was replaced by a FIFO. The stream
# ends then; the laptop reconnects and resumes at the last byte that it has. A slow line has a second more for each 128 KiB, and gets smaller
# batches, so that signs of life come in between.
send() {
  [ "$pieces" -gt 0 ] || return 0
  clock
  sending=$t
  # shellcheck disable=SC2086
  within $((60 + gathered / 131072)) sh -c "$PIECES" sh "$dir" "$dd" $batch || exit 1
  clock
  if [ $((t - sending)) -ge 5 ] && [ "$window" -gt 524288 ]; then
    window=$((window / 2))
    [ "$frame" -le "$window" ] || frame=$window
  fi
  # A laptop that has just detached has removed the mark.
  if [ $((t - noted)) -ge 5 ] && [ -n "$mark" ] && [ -e "$mark" ]; then note_attached; fi
  sent=$((sent + gathered)) frames=$((frames + pieces)) batch='' gathered=0 pieces=0
  room
}
# run_files SUFFIX: sets $names to the wrappers that have such a file. Other files are ignored.
run_files() {
  names='' count=0
  for f in "$prefix"task-*"$1" "$prefix"rank-*"$1" "$prefix"node"$1"; do
    [ -e "$f" ] || [ -L "$f" ] || continue
    b=${f#"$prefix"} b=${b%"$1"}
    if ! wrapper "$b"; then warn name "$f"; continue; fi
    if [ -n "$beside" ] && [ -e "$beside/$b" ]; then warn name "$f"; continue; fi
    case $b in rank-*) if [ "${ranks:-0}" -gt 0 ] && [ "$n" -ge "$ranks" ]; then warn rank "$f"; continue; fi ;; esac
    if ! plain "$f"; then warn kind "$f"; continue; fi
    # An unreadable log is missing from the copy: the fetch must not report itself complete.
    if [ ! -r "$f" ]; then warn unreadable "$f"; unread=1; continue; fi
    count=$((count + 1))
    if [ "$count" -gt 4096 ]; then warn many "$f"; break; fi
    names="$names$b "
  done
}
# drains WRAPPER: whether its log may have grown since its size was read: its appender ran then, and the log grew within two seconds.
drains() {
  [ -n "$prefix" ] || return 1
  case $closed in *" $1 "*) return 1 ;; esac
  get held "$1"
  [ "${v:-0}" != 0 ] || { put held "$1" "$read_at"; return 0; }
  [ $((begun - v)) -lt 3 ]
}
# send_losses [WRAPPER]: sends the losses that the appenders recorded; of one wrapper at its end, with the final numbers.
send_losses() {
  [ -n "$prefix" ] || return 0
  run_files .lost
  for b in $names; do
    [ -z "$1" ] || [ "$1" = "$b" ] || continue
    while read -r kind from least most_lost _; do
      case $kind in killed | full | max | more | plain) ;; *) continue ;; esac
      if ! number "$from" || ! number "$least" || ! number "$most_lost"; then continue; fi
      case $lost in *" $b.$kind.$from "*) [ -n "$1" ] || continue ;; esac
      lost="$lost$b.$kind.$from "
      printf 'L %s %s %s %s %s\n' "$b" "$kind" "$from" "$least" "$most_lost"
    done <<LOST
$(bytes "$prefix$b.lost" "$dir" 1 4096 | LC_ALL=C tr -d '\000')
LOST
  done
  [ -z "$1" ] || return 0
  run_files .note
  for b in $names; do
    case $lost in *" $b.note "*) continue ;; esac
    lost="$lost$b.note "
    read -r _ text <<NOTE
$(first_lines "$dir" "$prefix$b.note")
NOTE
    case $text in group | direct:* | none:*) printf 'D %s %s\n' "$b" "$text" ;; *) warn text "$prefix$b.note" ;; esac
  done
}
# start_of PID: sets s to the process's start time, which distinguishes it from a later one with the same pid; empty: it has ended or is hidden.
start_of() {
  s=''
  number "$1" || return 0
  if [ -d /proc/self ]; then
    { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    case $1 in Z | X) ;; *) s=${20} ;; esac
  else s=$(ps -o lstart= -p "$1" 2>/dev/null | tr -s ' ' '_'); fi
}
# same PID START: whether this process still runs.
same() { start_of "$1"; [ -n "$s" ] && [ "$s" = "$2" ]; }
# contained_ended: whether the container has ended. A pid that is not visible may be hidden (hidepid) or belong to another machine (the engine's):
# docker is queried then, at most every 5 s; without an answer the container counts as running.
contained_ended() {
  if [ "$init_boot" = "$boot" ] && same "$init" "$init_start"; then
    as_noted=1
    [ -z "$proven" ] || return 1
  else
    [ -z "$as_noted" ] || pause=0
    as_noted=''
  fi
  if [ "$pause" -gt 0 ]; then pause=$((pause - 1)); return 1; fi
  pause=25
  # shellcheck disable=SC2016
  answer=$(within 5 sh -c "exec $docker inspect --type container --format '{{.State.Running}}' \"\$0\"" "$id" 2>&1 </dev/null)
  case $answer in true) return 1 ;; false | *[Nn]"o such container"* | *[Nn]"o such object"*) return 0 ;; esac
  # Its first process was visible before and is gone.
  if [ -n "$proven" ] && [ "$init_boot" = "$boot" ]; then
    [ -z "$s" ] || return 0
    case $(LC_ALL=C; kill -0 "$init" 2>&1) in *"o such process"*) return 0 ;; esac
  fi
  # A hanging daemon must not block the logs.
  pause=300
  [ -n "$silent" ] || { silent=1; printf 'W docker silent\n'; }
  return 1
}
# keeper_lives: checks the current pid file, since another follower may have started a keeper.
keeper_lives() {
  { read -r init init_start init_boot <"${P:-.}/keeper.pid"; } 2>/dev/null
  [ "${init_boot:-$boot}" = "$boot" ] && same "$init" "$init_start"
}
# bare_ended: whether the launcher and the keeper, which records its end, have both ended. A keeper that ends before the launcher is restarted
# by one follower, unless the run was stopped.
bare_ended() {
  if same "$init" "$init_start" || keeper_lives; then return 1; fi
  same "$node_pid" "$node_start" || return 0
  [ -z "$missing" ] || return 1
  again=$((again + 1)) s=''
  if [ -n "$guards" ] && [ "$again" -le 3 ] && number "$init" && [ ! -e "${record%.json}.stopped" ] &&
    (set -C; : >"$P/keeper.$init.$init_start.ended") 2>/dev/null; then
    cd / && start_keeper
    cd -P -- "$dir" || exit 1
    keeper_lives
  fi
  if [ -n "$s" ]; then printf 'W keeper again\n'; else missing=1; printf 'W keeper missing\n'; fi
  return 1
}
# ended_unseen: whether the ranks have ended and nothing is left that could record their status.
ended_unseen() {
  if [ -n "$run_boot" ] && [ -n "$boot" ] && [ "$run_boot" != "$boot" ]; then return 0; fi
  case $where in container) contained_ended ;; host) bare_ended ;; *) return 1 ;; esac
}
# gone_at: sets t to the best known end time of processes without a status: after a reboot, the last time a log grew.
gone_at() {
  t=$(date +%s)
  [ -n "$run_boot" ] && [ "$run_boot" != "$boot" ] || return 0
  # shellcheck disable=SC2016
  last=$(within 10 sh -c "$OPENED"'{ proper "$1" "$2" && tail -c 100 | tail -n 1; } <"$1"' sh "${prefix}times" "$dir" 2>/dev/null)
  last=${last%% *}
  if number "$last" && [ "$last" -lt "$t" ]; then t=$last; return 0; fi
  up=''
  { read -r up _ </proc/uptime; } 2>/dev/null
  up=${up%%.*}
  number "$up" && t=$((t - up))
}
# lost_ranks: the ranks that ended with the launcher and left no status.
lost_ranks() {
  run_files .pid
  files=''
  for b in $names; do case "$sent_ends$ended" in *" $b "*) ;; *) [ "$b" = node ] || files="$files $prefix$b.pid" ;; esac; done
  # shellcheck disable=SC2086
  [ -z "$files" ] || while read -r f pid start _; do
    b=${f#"$prefix"} b=${b%.pid}
    wrapper "$b" || continue
    if [ "$where" = host ] && same "$pid" "$start"; then continue; fi
    sent_ends="$sent_ends$b "; printf 'X %s gone %s\n' "$b" "$t"
  done <<RANKS
$(first_lines "$dir" $files)
RANKS
}
for pair in $have; do
  if wrapper "${pair%=*}" && number "${pair#*=}"; then put have "${pair%=*}" "${pair#*=}"; fi
done
# A follower gets its first heartbeat after one pass over all logs: the laptop has the whole of those of which nothing came.
[ -n "$once" ] || beat=24
if [ -z "$once" ] && [ -n "$mark" ]; then { printf '%s\n' "$who" >"$mark"; } 2>/dev/null; trap remove_mark EXIT; fi
note_attached
while :; do
  run_exists || { printf 'N\n'; exit 0; }
  clock
  begun=$t moved='' more=$once
  run_files .rc
  ended=" $names"
  run_files .pid
  new=''
  for b in $names; do case $known in *" $b "*) ;; *) new="$new $prefix$b.pid" ;; esac; done
  # shellcheck disable=SC2086
  [ -z "$new" ] || while read -r f pid start when _; do
    b=${f#"$prefix"} b=${b%.pid}
    wrapper "$b" || continue
    [ "$b" != node ] || node_pid=$pid node_start=$start
    if number "$pid" && seconds "${when:-0}"; then known="$known$b "; printf 'P %s %s %s %s\n' "$b" "$pid" "$start" "${when:-0}"; fi
  done <<FOUND
$(first_lines "$dir" $new)
FOUND
  for f in $new; do
    b=${f#"$prefix"} b=${b%.pid}
    case $known in *" $b "*) continue ;; esac
    get tries "$b"; put tries "$b" $((${v:-0} + 1))
    [ "${v:-0}" -lt 5 ] || { known="$known$b "; warn text "$f"; }
  done
  # The logs that are complete, before their sizes are read: what is sent below takes time.
  closed=' '
  for b in $ended; do case $sent_ends in *" $b "*) ;; *) [ ! -e "$prefix$b.end" ] || closed="$closed$b " ;; esac; done
  # The launcher is last: its exit status follows from the ranks'.
  run_files .log
  open_logs
  files='' sizes=''
  for b in $names; do files="$files $prefix$b.log"; done
  # shellcheck disable=SC2012,SC2086
  [ -z "$files" ] || sizes=$(LC_ALL=C ls -lnrd -- $files 2>/dev/null | while read -r mode _ _ _ size _ _ _ f _; do
    b=${f#"$prefix"} b=${b%.log}
    case $mode in -*) wrapper "$b" && number "$size" && printf '%s %s ' "$size" "$b" ;; esac
  done)
  # The end is sent even if there is no readable log.
  bare='' last=''
  for b in $ended; do
    case " $sizes" in *" $b "*) continue ;; esac
    case $b in node) last='- node' ;; *) bare="$bare- $b " ;; esac
  done
  # shellcheck disable=SC2086
  set -- $bare $sizes $last
  clock
  read_at=$t
  waits=''
  while [ $# -ge 2 ]; do
    size=$1 b=$2
    shift 2
    get have "$b"; at=${v:-0}
    if [ "$size" = - ] || [ -n "$no_logs" ]; then size=$at; fi
    if [ -n "$most" ] && [ "$size" -gt "$most" ]; then size=$most; warn long "$prefix$b.log"; fi
    if [ "$size" -lt "$at" ]; then
      get cuts "$b"
      if [ "${v:-0}" -ge 8 ]; then warn cut "$prefix$b.log"; size=$at; else
        put cuts "$b" $((${v:-0} + 1))
        printf 'S %s %s\n' "$b" "$size"
        put have "$b" 0
        at=0
      fi
    fi
    if [ "$at" -lt "$size" ] && plain "$prefix$b.log"; then
      n=$((size - at))
      if [ "$n" -gt "$frame" ]; then n=$frame more=1; fi
      gather "$prefix$b.log" "$b" "$at" "$n" "$((size - at - n))"
      at=$((at + n)) moved=1
      put have "$b" "$at"
      put held "$b" 0
      # A backlog is sent by more than one frame a pass, the files in turn.
      if [ "$at" -lt "$size" ]; then
        clock
        if [ $((t - begun)) -lt 2 ]; then set -- "$@" "$size" "$b"; continue; fi
      fi
    fi
    # The launcher waits for the files that are sent further.
    if [ "$b" = node ] && [ $# -gt 0 ]; then set -- "$@" "$size" node; continue; fi
    case $ended in *" $b "*)
      case $sent_ends in *" $b "*) continue ;; esac
      if [ "$at" -lt "$size" ] || [ "$b$waits" = node1 ] || [ -z "$sized" ] || drains "$b"; then waits=1; continue; fi
      read -r _ rc when _ <<STATUS
$(first_lines "$dir" "$prefix$b.rc")
STATUS
      if [ "$rc" != killed ] && ! number "$rc"; then
        get tries "$b"; put tries "$b" $((${v:-0} + 1))
        if [ "${v:-0}" -lt 5 ]; then waits=1; continue; fi
        warn text "$prefix$b.rc"; rc=killed
      fi
      seconds "$when" || when=0
      send
      ended_one=$b
      send_losses "$b"
      b=$ended_one
      sent_ends="$sent_ends$b "; printf 'X %s %s %s\n' "$b" "$rc" "$when"; moved=1
      [ "$b" != node ] || remove_mark ;;
    esac
  done
  send
  # Nothing is left that could record the launcher's status.
  if [ -n "$where" ] && [ -z "$moved$gone" ] && [ -e "${prefix}node.pid" ] && [ ! -e "${prefix}node.rc" ] && ended_unseen; then
    sleep 1
    if [ ! -e "${prefix}node.rc" ] && run_exists; then
      gone=1
      gone_at
      lost_ranks
      printf 'X node gone %s\n' "$t"
      remove_mark
    fi
  fi
  # Every 5 s: a heartbeat that must be acknowledged, and the record that a follower is attached. A pass counts as a fifth of a second and the
  # seconds that it took.
  clock
  beat=$((beat + 1 + 5 * (t - begun)))
  if [ "$beat" -ge 25 ]; then
    beat=0 free=0 total=0
    note_attached
    # shellcheck disable=SC2046
    set -- $(df -Pk . 2>/dev/null | tail -n 1)
    [ $# -ge 4 ] && free=$4 total=$2
    printf 'H %s %s %s\n' "$t" "$free" "$total"
    frames=$((frames + 1))
    room
    send_losses
  fi
  if [ -z "$moved" ]; then
    while [ "$frames" -gt "$acked_frames" ]; do ack; done
    if [ -n "$once" ] && [ -z "$waits" ]; then [ -n "$unread" ] || printf 'E\n'; exit 0; fi
  fi
  # Ongoing output is sent five times a second, a backlog without pauses.
  if [ -z "$moved" ] || [ -z "$more" ]; then sleep 0.2 2>/dev/null || sleep 1; fi
done
