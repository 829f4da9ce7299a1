# shellcheck shell=sh
# Sends every log of a run by byte offset, one session a host, after read.sh. Reads acknowledgements from its input.
#   F <file> <offset> <length>\n<bytes>   P <file> <pid> <start> <time>   X <file> <status> <time>   H <time> <free KiB> <total KiB>
#   S <file> <size>   the file is shorter than what was sent of it: what follows is sent from its beginning
#   L <file> <kind> <offset> <least> <most>   bytes are missing, as append.sh noted; once an offset, and again at the end
#   D <file> <text>   how a log is written where it is not as usual, as pipe.sh noted; once
#   W <word> <name>   something is not what it should be and is left alone; each once
# An acknowledgement is `<bytes> <frames>`: totals since the start. At most $window bytes and 256 frames are unacknowledged.
# With once set it ends with `E` when all that is there was sent.
# Set before: F (how the paths of the run's files begin), record (the file that names the run while it is there), note (the file that
# says that a follower is attached; empty: none), mark (a file that is there while we follow; empty: none), once, guards (whether this follower
# ends the gang when a rank fails), window, frame (sizes in bytes), most (the longest that a log can be), ranks (how many the run has; 0: not known), init (pid whose end is the end of all
# ranks; empty: unknown), have (` file=offset file=offset `), no_logs (starts and ends alone are wanted: the laptop cannot store logs).
: "${window:=8388608}" "${frame:=4194304}" "${most:=}" "${once:=}" "${guards:=}" "${init:=}" "${note:=}" "${mark:=}" "${have:= }" "${record:=}" "${no_logs:=}"
sent=0 frames=0 batch='' gathered=0 pieces=0 acked=0 acked_frames=0 beat=0 gone='' known=' ' sent_ends=' ' odd=' ' odds=0 held=' ' tries=' ' cuts=' ' lost=' ' unread='' prefix=${F##*/}
unset TIME_STYLE
cd -P -- "${F%/*}" 2>/dev/null || { printf 'N\n'; exit 0; }
dir=$(pwd -P)
ack() { read -r acked acked_frames || exit 0; number "$acked" && number "$acked_frames" || exit 0; }
room() { while [ $((sent - acked)) -gt "$window" ] || [ $((frames - acked_frames)) -gt 256 ]; do ack; done; }
# The keeper reads it, perhaps as another user.
here() { t=$(date +%s); [ -z "$guards" ] || [ -z "$note" ] || (umask 022; printf '%s\n' "$t" >"$note.new" && mv -f "$note.new" "$note"); }
# Another operator may remove the run meanwhile.
there() { [ -e "$record" ]; }
# A teardown waits for the followers that have not yet sent how the run ended.
heard() { [ -z "$mark" ] || rm -f "$mark"; }
# get MAP KEY: sets v. put MAP KEY VALUE: sets map. Keys are names of wrappers, values numbers.
get() { case $1 in *" $2="*) v=${1#*" $2="}; v=${v%% *} ;; *) v='' ;; esac; }
put() { case $1 in *" $2="*) map=${1#*" $2="}; map="${1%%" $2="*} $2=$3 ${map#* }" ;; *) map="$1$2=$3 " ;; esac; }
warn() { # WORD NAME
  [ "$odds" -lt 8 ] || return 0
  w=$1:$(cleaned "$2")
  case $odd in *" $w "*) ;; *) odd="$odd$w " odds=$((odds + 1)); printf 'W %s %s\n' "$1" "${w#*:}"; [ "$odds" -lt 8 ] || printf 'W more %s*\n' "$prefix" ;; esac
}
# What is not there is sent as zeros: a frame is always as long as it says, so that a file that is cut meanwhile breaks nothing else.
# shellcheck disable=SC2016
PIECES=$OPENED'd=$1; shift
while [ $# -ge 4 ]; do
  printf "F %s %s %s\n" "$2" "$3" "$4"
  { { proper "$1" "$d" && tail -c "+$(($3 + 1))"; } <"$1"; head -c "$4" /dev/zero; } 2>/dev/null | head -c "$4" || exit 1
  shift 4
done'
# gather FILE WRAPPER OFFSET LENGTH: a piece for the next frames, which are sent by one shell, at most $frame bytes together.
gather() {
  if [ $((gathered + $4)) -gt "$frame" ] || [ "$pieces" -ge 64 ]; then send; fi
  batch="$batch $*" gathered=$((gathered + $4)) pieces=$((pieces + 1))
}
# After a timeout the last frame may be too short: the laptop has read nothing for a minute, or a file was replaced by a FIFO. The stream
# ends then; the laptop reconnects and resumes at the last byte that it has.
send() {
  [ "$pieces" -gt 0 ] || return 0
  # shellcheck disable=SC2086
  within 60 sh -c "$PIECES" sh "$dir" $batch || exit 1
  sent=$((sent + gathered)) frames=$((frames + pieces)) batch='' gathered=0 pieces=0
  room
}
# run_files ENDING: the wrappers that have such a file, in $names. The rest is left alone.
run_files() {
  names='' count=0
  for f in "$prefix"rank-*"$1" "$prefix"node"$1"; do
    [ -e "$f" ] || [ -L "$f" ] || continue
    b=${f#"$prefix"} b=${b%"$1"}
    if ! wrapper "$b"; then warn name "$f"; continue; fi
    if [ "$b" != node ] && [ "${ranks:-0}" -gt 0 ] && [ "$n" -ge "$ranks" ]; then warn rank "$f"; continue; fi
    if ! plain "$f"; then warn kind "$f"; continue; fi
    # What cannot be read is not there; a fetch must not call itself complete.
    if [ ! -r "$f" ]; then warn unreadable "$f"; unread=1; continue; fi
    count=$((count + 1))
    if [ "$count" -gt 4096 ]; then warn many "$f"; break; fi
    names="$names$b "
  done
}
# drains WRAPPER: whether its log may still grow: its appender has not ended, and was not silent for two seconds.
drains() {
  if [ -z "$prefix" ] || [ -e "$prefix$1.end" ]; then return 1; fi
  t=$(date +%s)
  get "$held" "$1"
  [ "${v:-0}" != 0 ] || { put "$held" "$1" "$t"; held=$map; return 0; }
  [ $((t - v)) -lt 3 ]
}
# noted [WRAPPER]: what the appenders noted; of one wrapper at its end, with the last numbers.
noted() {
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
if [ -z "$once" ] && [ -n "$mark" ]; then { true >"$mark"; } 2>/dev/null; trap heard EXIT; fi
here
while :; do
  there || { printf 'N\n'; exit 0; }
  moved='' more=$once
  run_files .rc
  ended=" $names"
  run_files .pid
  new=''
  for b in $names; do case $known in *" $b "*) ;; *) new="$new $prefix$b.pid" ;; esac; done
  # shellcheck disable=SC2086
  [ -z "$new" ] || while read -r f pid start when _; do
    b=${f#"$prefix"} b=${b%.pid}
    wrapper "$b" || continue
    if number "$pid" && seconds "${when:-0}"; then known="$known$b "; printf 'P %s %s %s %s\n' "$b" "$pid" "$start" "${when:-0}"; fi
  done <<FOUND
$(first_lines "$dir" $new)
FOUND
  for f in $new; do
    b=${f#"$prefix"} b=${b%.pid}
    case $known in *" $b "*) continue ;; esac
    get "$tries" "$b"; put "$tries" "$b" $((${v:-0} + 1)); tries=$map
    [ "${v:-0}" -lt 5 ] || { known="$known$b "; warn text "$f"; }
  done
  # The launcher last: its exit status follows from theirs, and is sent after theirs.
  run_files .log
  files='' sizes=''
  for b in $names; do files="$files $prefix$b.log"; done
  # shellcheck disable=SC2012,SC2086
  [ -z "$files" ] || sizes=$(LC_ALL=C ls -lnrd -- $files 2>/dev/null | while read -r mode _ _ _ size _ _ _ f _; do
    b=${f#"$prefix"} b=${b%.log}
    case $mode in -*) wrapper "$b" && number "$size" && printf '%s %s ' "$size" "$b" ;; esac
  done)
  # An end is sent even where there is no log that can be read.
  bare='' last=''
  for b in $ended; do
    case " $sizes" in *" $b "*) continue ;; esac
    case $b in node) last='- node' ;; *) bare="$bare- $b " ;; esac
  done
  # shellcheck disable=SC2086
  set -- $bare $sizes $last
  waits=''
  while [ $# -ge 2 ]; do
    size=$1 b=$2
    shift 2
    get "$have" "$b"; at=${v:-0}
    if [ "$size" = - ] || [ -n "$no_logs" ]; then size=$at; fi
    if [ -n "$most" ] && [ "$size" -gt "$most" ]; then size=$most; warn long "$prefix$b.log"; fi
    if [ "$size" -lt "$at" ]; then
      get "$cuts" "$b"
      if [ "${v:-0}" -ge 8 ]; then warn cut "$prefix$b.log"; size=$at; else
        put "$cuts" "$b" $((${v:-0} + 1)); cuts=$map
        printf 'S %s %s\n' "$b" "$size"
        put "$have" "$b" 0; have=$map at=0
      fi
    fi
    if [ "$at" -lt "$size" ] && plain "$prefix$b.log"; then
      n=$((size - at))
      [ "$n" -le "$frame" ] || n=$frame more=1
      gather "$prefix$b.log" "$b" "$at" "$n"
      at=$((at + n)) moved=1
      put "$have" "$b" "$at"; have=$map
      put "$held" "$b" 0; held=$map
    fi
    case $ended in *" $b "*)
      case $sent_ends in *" $b "*) continue ;; esac
      if [ "$at" -lt "$size" ] || [ "$b$waits" = node1 ] || drains "$b"; then waits=1; continue; fi
      read -r _ rc when _ <<STATUS
$(first_lines "$dir" "$prefix$b.rc")
STATUS
      if [ "$rc" != killed ] && ! number "$rc"; then
        get "$tries" "$b"; put "$tries" "$b" $((${v:-0} + 1)); tries=$map
        if [ "${v:-0}" -lt 5 ]; then waits=1; continue; fi
        warn text "$prefix$b.rc"; rc=killed
      fi
      seconds "$when" || when=0
      send
      ended_one=$b
      noted "$b"
      b=$ended_one
      sent_ends="$sent_ends$b "; printf 'X %s %s %s\n' "$b" "$rc" "$when"; moved=1
      [ "$b" != node ] || heard ;;
    esac
  done
  send
  # The container, or the keeper, is gone and left no status: nothing of it can run any more.
  if [ -n "$init" ] && [ -e "${prefix}node.pid" ] && [ ! -e "${prefix}node.rc" ] && [ -z "$gone" ] && [ ! -d "/proc/$init" ] && ! kill -0 "$init" 2>/dev/null; then
    sleep 1
    [ -e "${prefix}node.rc" ] || ! there || { gone=1; printf 'X node gone %s\n' "$(date +%s)"; }
  fi
  # Every 5 s, sooner in a flood: a heartbeat that must be acknowledged, and the note that a follower is attached.
  beat=$((beat + 1))
  if [ "$beat" -ge 25 ]; then
    beat=0 free=0 total=0
    here
    # shellcheck disable=SC2046
    set -- $(df -Pk . 2>/dev/null | tail -n 1)
    [ $# -ge 4 ] && free=$4 total=$2
    printf 'H %s %s %s\n' "$t" "$free" "$total"
    frames=$((frames + 1))
    room
    noted
  fi
  if [ -z "$moved" ]; then
    while [ "$frames" -gt "$acked_frames" ]; do ack; done
    if [ -n "$once" ] && [ -z "$waits" ]; then [ -n "$unread" ] || printf 'E\n'; exit 0; fi
  fi
  # What ranks write all the time is sent five times a second, and a backlog without a pause.
  if [ -z "$moved" ] || [ -z "$more" ]; then sleep 0.2 2>/dev/null || sleep 1; fi
done
