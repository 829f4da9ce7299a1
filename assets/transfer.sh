# shellcheck shell=sh disable=SC2016,SC2317 # scripts for other shells are quoted text; functions are called by name
# One session of a file transfer: reads commands from stdin and answers on stdout; all data travels in the same two directions.
# Set before: root (the directory of the copied files), nonce (hex, of this session). Answers, one line each:
#   H <directory exists> <free KiB> <parts> <0, or what is missing> <marked> <physical path>   once, at the start; marked: 1, or
#              2 if the marker names another path
#   K          a long step is still running (at least every 20 s)
#   F <text>   it failed; the session ends
# Commands; `+N` stands for N bytes that follow the line:
#   T                    list the tree below root         S +N    list these NUL-ended names       M   make root
#   L                    list what is in root itself
#   A BLOCKS NAMES +     a tar archive of BLOCKS * 10240 bytes, then NAMES bytes of NUL-ended file names in their order, then `V SHA256` over the
#                        contents in this order: unpacked beside, proven, synced, renamed into place. Answer: A
#   Q ID                 how much of a big file an earlier session left. Answer: Q SIZE SHA256
#   B ID OFFSET LENGTH LAST MODE MTIME NAME +    the name (NAME bytes), LENGTH bytes of the file from OFFSET on, then `V SHA256` over them. With
#                        LAST 1 the file is synced and renamed into place, with 2 its blocks of zeros become holes before, if fallocate can. Answer: B
#   C MODE +N            these NUL-ended names get this mode. Answer: C
#   W                    mark root as made by a sync, if nothing is in it. Answer: W
#   D +N                 remove these NUL-ended names, files and empty directories, if a sync has made root. Answer: D
#   G +N                 send these NUL-ended names as tar archives, then a block `NONCE SHA256 STATUS`
#   P SIZE +N            SHA-256 of the first SIZE bytes of this file. Answer: P SHA256
#   R BLOCKS LENGTH +N   send LENGTH bytes of this file after BLOCKS MiB, zeros where it has less; answer after them: R SHA256 STATUS SIZE MTIME,
#                        STATUS 0 if all of it was read, SIZE and MTIME what the file has then
#   Z                    the end
# Bulk data to the laptop travels in frames of 2 MiB, at most 3 unacknowledged; an acknowledgement is a line with the number of frames.
: "${root:?}" "${nonce:?}"
LC_ALL=C work='' top='' base='' beat='' why=''
uid=$(id -u) part=.orchestrate-part.$uid marker=./.orchestrate-sync
export LC_ALL nonce
umask 022
unset CDPATH
# Bytes that are no printable ASCII become `?`; at most 300 characters.
one_line() { printf '%s' "$1" | tail -n 1 | tr -c ' -~' '?' | cut -c 1-300; }
fail() { end_beat; printf 'F %s\n' "$(one_line "$1")"; [ -z "$work" ] || rm -rf "$work"; exit 0; }
take() { dd bs="$1" count=1 iflag=fullblock 2>/dev/null; }
take_data() { # BYTES
  [ "$1" -lt 65536 ] || dd bs=65536 count=$(($1 / 65536)) iflag=fullblock 2>/dev/null || return 1
  [ $(($1 % 65536)) -eq 0 ] || take $(($1 % 65536))
}
# Keeps the laptop waiting while a silent command works, for an hour at most: a beat every 20 seconds. The sleep outlives the subshell that is
# killed, so it is short: nothing of ours stays on the host. Not to be nested. No EXIT trap ends the beat: a background process that is killed
# before it has begun runs that trap too (bash 5.2), and complains.
patiently() {
  {
    n=0
    while [ "$n" -lt 3600 ] && sleep 1 >/dev/null 5>&- 6<&-; do
      n=$((n + 1))
      [ $((n % 20)) -ne 0 ] || printf 'K\n' >&5 || exit
    done
  } </dev/null >/dev/null 2>&1 &
  beat=$!
  "$@"
  status=$?
  end_beat
  return "$status"
}
end_beat() { [ -z "$beat" ] || { kill "$beat" && wait "$beat"; } 2>/dev/null; beat=''; }
# openssl uses the processor's SHA instructions, coreutils does not: 950 MB/s and 140 MB/s were seen on one core.
sha=sha256sum
case $(openssl dgst -sha256 -r </dev/null 2>/dev/null) in e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' '*) sha='openssl dgst -sha256 -r' ;; esac
export sha
digest() { sum=$($sha) && sum=${sum%% *} && printf '%s' "$sum"; }
free_space() { free=$(df -Pk "$1" 2>/dev/null | tail -n 1 | { read -r _ _ _ k _ && printf '%s' "$k"; }); case $free in '' | *[!0-9]*) free=-1 ;; esac; }
# pump: stdin to fd 5 in frames; waits for acknowledgements on fd 6.
pump() {
  frames=0 acked=0
  while :; do
    case $(dd bs=65536 count=32 iflag=fullblock 2>&1 >&5) in *[1-9]*+*' records in'* | *+[1-9]*' records in'*) ;; *) return ;; esac
    frames=$((frames + 1))
    while [ $((frames - acked)) -ge 3 ]; do
      read -r acked <&6 || exit 1
      case $acked in '' | *[!0-9]* | ???????????*) exit 1 ;; esac
    done
  done
}
# Links are read one by one: their text may hold anything.
links='for l do printf "%s L %s\n%s > " "$nonce" "$l" "$nonce"; readlink -n "$l"; printf "\n"; done'
# What find and stat complained about, at most 20 lines; what vanished meanwhile is no complaint.
report_unlisted() {
  complaints=0
  while read -r line; do
    case $line in *'No such file or directory'*) continue ;; esac
    complaints=$((complaints + 1))
    [ "$complaints" -gt 20 ] || printf '%s ! %s\n' "$nonce" "$(one_line "$line")" >&9
  done
}
list_tree() {
  { find . ! -name . \( -name .orchestrate-part -o -name '.orchestrate-part.*' -o -name .orchestrate-sync \) -prune -o -exec stat -c "$nonce %f %s %Y %n" {} + 2>&1 >&9 | report_unlisted; } 9>&1
  find . \( -name .orchestrate-part -o -name '.orchestrate-part.*' -o -name .orchestrate-sync \) -prune -o -type l -exec sh -c "$links" sh {} + 2>/dev/null
}
list_children() {
  { find . ! -name . -prune ! -name .orchestrate-part ! -name '.orchestrate-part.*' ! -name .orchestrate-sync -exec stat -c "$nonce %f %s %Y %n" {} + 2>&1 >&9 | report_unlisted; } 9>&1
}
list_names() {
  take "$1" | xargs -0 sh -c 'stat -c "$nonce %f %s %Y %n" "$@"
    for p do
      if [ -L "$p" ]; then set -- "$p"; '"$links"'; fi
    done' sh 2>/dev/null
}
listing() { { printf '\n'; "$@"; printf '%s E\n%s ' "$nonce" "$nonce"; } | pump; }
# The physical path proves that no link was followed. Sourced by shells that xargs starts. An own directory that may not be written is opened
# until the next one is entered.
inside='shut=""
leave() { [ -z "$shut" ] || chmod "$shut" .; shut=""; }
stop() { leave; printf "%s\n" "$1" >&3; exit 255; }
enter() { leave; cd -P "$base/$1" 2>/dev/null || stop "$1: no such directory, or no permission"
  case $1 in .) want=$top ;; *) want=$base/$1 ;; esac
  [ "$PWD" = "$want" ] || stop "$1: a link leads to another directory; nothing is written through it"
  [ -w . ] || { shut=$(stat -c %a .) && chmod u+w . || shut=""; }; }
holder() { h=${1#./}; case $h in */*) enter "${h%/*}" ;; *) enter . ;; esac; }
'
# Directories that the target lacks are renamed as a whole, up to 200 at once: the last of them is $new, they are the arguments, and their
# holder $from is entered. `mv` with several names goes into no directory that has one of them.
move='flush() { [ $# = 0 ] || m=$(mv -- "$@" . 2>&1) || stop "$m"; }
new="" from="" seen=""
for d do
  [ -n "$seen" ] || { seen=1; set --; }
  [ -d "$tree/$d" ] || continue
  d=${d#./}
  [ -z "$new" ] || case $d in "$new"/*) continue ;; esac
  if [ "$d" != . ] && [ ! -e "$base/$d" ] && [ ! -L "$base/$d" ]; then
    case $d in */*) at=${d%/*} ;; *) at=. ;; esac
    if [ "$at" != "$from" ] || [ $# -ge 200 ]; then flush "$@"; set --; from=$at; enter "$at"; fi
    new=$d
    set -- "$@" "$tree/$d"
    continue
  fi
  flush "$@"; set --; new="" from=""
  enter "$d"
  m=$(find "$tree/$d/." ! -name . -prune ! -type d -exec sh -c "exec mv -f -- \"\$@\" ." sh {} + 2>&1) || stop "$m"
  [ -z "$m" ] || stop "$m"
done
flush "$@"'
set_mode='for p do
  holder "$p"
  [ -L "./${p##*/}" ] || m=$(chmod "$mode" "./${p##*/}" 2>&1) || stop "$m"
done'
# each SCRIPT: runs it for the NUL-ended names of stdin; its complaint is a failure.
each() {
  complaint=$({ xargs -0 sh -c "$inside$1
leave" sh >/dev/null 2>&1 || printf 'xargs failed\n' >&3; } 3>&1 | head -n 1)
  [ -z "$complaint" ] || fail "$complaint"
}
# The devices of those directories in $work/dirs that are there below $top.
devices() { # FORMAT
  (cd "$top" && xargs -0 sh -c 'for d do [ ! -d "$d" ] || printf "%s\0" "$d"; done' sh <"$work/dirs" | xargs -0 stat -c "$1" 2>/dev/null)
}
is_in_tree() { [ -d "$tree/$1" ]; }
# The first mount point below $base whose relative path the command accepts.
mount_below() {
  sed 's/\\134/\\0134/g' /proc/self/mountinfo 2>/dev/null | while read -r _ _ _ _ point _; do
    case $point in *\\*) point=$(printf '%b' "$point") ;; esac
    case $point in "$base"/*) if "$1" "${point#"$base"/}"; then printf '%s\n' "$point"; fi ;; esac
  done | head -n 1
}
# A rename into another file system would be a copy, which a cut leaves half-written under its final name. Refuses directories of $tree that
# are, in the target, below a mount point or on another device.
refuse_mounts() {
  (cd "$tree" && find . -type d -print0) >"$work/dirs" || fail "$work: the disk is full"
  mount=$(mount_below is_in_tree)
  if [ -z "$mount" ] && [ "$(devices %d | sort -u)" != "$device" ]; then
    mount=$(devices '%d %n' | grep -v "^$device " | head -n 1 | cut -d ' ' -f 2-)
  fi
  [ -z "$mount" ] || fail "$mount: another file system is mounted there"
}
may_enter() { (cd -P "$1" || exit) 2>/dev/null; }
settle() { sync -f "$1" 2>/dev/null || sync; }
# Enters the directory of parts and holds it open as fd 4: a name in the target may lead elsewhere at any time, the open directory does not.
begin_writing() {
  [ -z "$work" ] || return 0
  base=${top%/}
  cd -P "$top" || fail "$top: it is gone"
  [ -e "$part" ] || [ -L "$part" ] || err=$(mkdir -m 700 "$part" 2>&1) || fail "$top: cannot be written: ${err##*: }"
  { [ ! -L "$part" ] && cd -P "./$part" && [ "$PWD" = "$base/$part" ] && owner=$(stat -c '%u %a' .); } 2>/dev/null || owner=none
  case $owner in "$uid 700" | "$uid 2700") ;; *) fail "$base/$part: this is no directory of orchestrate (one of this user, mode 700, no link); remove it" ;; esac
  exec 4<. || fail "$base/$part: it cannot be opened"
  purge_parts
  [ -n "$place" ] || place=0
  work=$held/w.$place.$$.$nonce
  err=$(mkdir "$work" 2>&1) || { work=''; fail "$err"; }
  tree=$work/t same='' device=$(stat -c %d "$work")
  : >"$work/try" && if mv -T "$work/try" "$work/tried" 2>/dev/null; then same=-T; fi
  cd -P "$top" || fail "$top: it is gone"
  export top base tree same
}
# In the directory of parts: removes what is older than a week, and the work of sessions that have ended on this boot of this host or container.
purge_parts() {
  find . ! -name . -prune -mtime +7 -exec rm -rf {} + 2>/dev/null
  place=$(readlink /proc/self/ns/pid; cat /proc/sys/kernel/random/boot_id) 2>/dev/null || place=''
  place=$(printf '%s' "$place" | tr -dc 0-9a-f)
  [ -n "$place" ] || return 0
  for old in ./w."$place".*; do
    owner=${old#./w."$place".} owner=${owner%%.*}
    case $owner in '' | *[!0-9]*) ;; *) [ -d "/proc/$owner" ] || rm -rf "$old" ;; esac
  done
}
held=/proc/self/fd/4
# Whether a sync of this very path has made the directory: the marker names the path, so that no link can put another sync's directory in
# its place. A marker without a path was made by hand; it holds where no link leads to the directory. Sets why, where it is not.
is_marked() {
  why="no sync has made it: $marker is missing"
  [ -f "$marker" ] && [ ! -L "$marker" ] && [ "$(stat -c %u "$marker" </dev/null)" = "$uid" ] || return 1
  why="its $marker is for another path, or a link leads here"
  made_for=$(sed 1d "$marker" </dev/null 2>/dev/null; printf .)
  case $made_for in "$root
.") ;; .) [ "$root" = "$top" ] || return 1 ;; *) return 1 ;; esac
  why='this is a home or /'
  ! holds_more
}
# A home or the root of the file system: never a sync's own, however the path is written.
holds_more() { [ "$top" = / ] || [ "$top" = "$(cd -P "${HOME:-/}" 2>/dev/null && pwd -P)" ]; }
# The directory contains only parts: later entries are the sync's, or were put there on purpose.
mark_directory() {
  begin_writing
  holds_more || [ -n "$(find . ! -name . -prune ! -name '.orchestrate-part*' 2>/dev/null | head -n 1)" ] ||
    (
      set -C
      printf '%s\n' 'A sync of orchestrate has made this directory; its `delete` removes what the sync does not send.' "$root" >"$marker"
    ) 2>/dev/null || fail "$top: cannot be written"
  printf 'W\n'
}
remove='for p do
  holder "$p"
  l=./${p##*/}
  if [ -d "$l" ] && [ ! -L "$l" ]; then m=$(rmdir "$l" 2>&1) || stop "$m"; else m=$(rm -f "$l" 2>&1) || stop "$m"; fi
done'
remove_names() { # NAMES
  begin_writing
  take "$1" >"$work/names" || fail "$work: the disk is full"
  { cd -P "$top" && [ "$PWD" = "$top" ] && is_marked; } || fail "$top: ${why:-it is gone}; nothing is removed"
  mount=$(mount_below true)
  [ -z "$mount" ] || fail "$mount: another file system is mounted there; nothing is removed"
  each "$remove" <"$work/names"
  printf 'D\n'
}
receive_archive() { # BLOCKS NAMES
  begin_writing
  rm -rf "$tree"
  mkdir "$tree" || fail "$tree: cannot be made"
  err=$({ take_data $(($1 * 10240)) | tar -x -p -o -f - -C "$tree" 2>&1 >/dev/null; } 2>&1 || printf '\ntar failed on this host\n')
  case $err in *'tar failed on this host'*) fail "tar: ${err%
tar failed on this host*}" ;; esac
  if [ "$2" -gt 0 ]; then take "$2" >"$work/names" || fail "$work: the disk is full"; else : >"$work/names"; fi
  read -r _ want || { end_beat; exit 0; }
  refuse_mounts
  have=$(cd "$tree" && digest_to "$work/sum" sh -c 'if [ -s "$1" ]; then xargs -0 cat <"$1"; fi | $sha >"$2"' sh "$work/names" "$work/sum")
  [ "$have" = "$want" ] || fail "what arrived is not what was sent (SHA-256 differs); try again"
  settle "$tree"
  each "$move" <"$work/dirs"
  [ -z "$(find "$tree" ! -type d 2>/dev/null | head -n 1)" ] || fail "not every file could be renamed into place"
  printf 'A\n'
}
# digest_to FILE COMMAND…: prints the digest that the command wrote to FILE.
digest_to() {
  file=$1; shift
  "$@"
  read -r sum _ <"$file" && printf '%s' "$sum"
}
partly() { # ID
  size=0 sum=none
  begin_writing
  if [ -f "$held/$1" ] && [ ! -L "$held/$1" ]; then
    size=$(stat -c %s "$held/$1")
    sum=$(digest_to "$work/sum" sh -c '$sha <"$1" >"$2"' sh "$held/$1" "$work/sum")
  fi
  printf 'Q %s %s\n' "$size" "$sum"
}
receive_big() { # ID OFFSET LENGTH LAST MODE MTIME NAME
  begin_writing
  name=$(take "$7"; printf .) name=${name%.} file=$held/$1
  rm -rf "$tree"
  case $name in */*) holder=$tree/${name%/*} ;; *) holder=$tree ;; esac
  mkdir -p -- "$holder" || fail "$work: the disk is full"
  # Before anything is kept, and before it is renamed.
  case "$2 $4" in '0 '* | *' '[12]) refuse_mounts ;; esac
  [ ! -L "$file" ] || rm -f "$file"
  [ "$2" != 0 ] || rm -f "$file"
  # Opened first, then proven to be this file, then written.
  err=$({ : >>"$file"; } 2>&1) || fail "$err"
  exec 7>>"$file"
  [ "$(readlink /proc/self/fd/7 </dev/null)" = "$(readlink "$held" </dev/null)/$1" ] || fail "$file: a link leads to another file"
  [ "$(stat -c %s "$file")" = "$2" ] || fail "$file: another transfer changed it; try again"
  have=$({ take_data "$3" | tee -a /dev/fd/8 | digest >&9; } 8>&7 9>&1)
  exec 7>&-
  [ "$(stat -c %s "$file")" = $(($2 + $3)) ] || fail "$file: no space left on device, or the connection was lost; a rerun goes on there"
  read -r _ want || { end_beat; exit 0; }
  [ "$have" = "$want" ] || { rm -f "$file"; fail "what arrived is not what was sent (SHA-256 differs); try again"; }
  [ "$4" != 0 ] || { printf 'B\n'; return; }
  [ "$4" = 1 ] || fallocate -d "$file" >/dev/null 2>&1
  { chmod "$5" "$file" && touch -d "@$6" "$file"; } || fail "$file: mode and time cannot be set"
  settle "$file"
  export file
  printf '%s\0' "$name" >"$work/names" || fail "$work: the disk is full"
  each 'holder "$1"; [ ! -d "./${1##*/}" ] || stop "$1: is a directory"
    m=$(mv -f $same -- "$file" "./${1##*/}" 2>&1) || stop "$m"' <"$work/names"
  printf 'B\n'
}
# From the complaints of tar: `!` and the first one, if it failed.
tar_complaint() {
  first='' failed=''
  while read -r line; do
    case $line in
      'tar failed here') failed=1 ;;
      *) [ -n "$first" ] || first=$(one_line "$line" | tr '=!' '??') ;;
    esac
  done
  [ -z "$failed" ] || printf '!%s\n' "${first:-tar failed}"
}
send_files() { # NAMES
  # shellcheck disable=SC2086
  sum=$({ { { {
    { take "$1" | xargs -0 tar $deref -cf - || printf '\ntar failed here\n' >&2; } 2>&1 >&7 | tar_complaint >&8
  } 7>&1 | tee /dev/fd/3 | { sum=$(digest) && printf '=%s\n' "$sum"; } >&4; } 3>&1 | pump; } 4>&1; } 8>&1)
  # Either line may be the first.
  status=0
  case $sum in *!*) status=${sum#*!} status="1 ${status%%
*}" ;; esac
  sum=${sum##*=} sum=${sum%%
*}
  printf '%-511s\n' "$nonce $sum $status"
}
send_big() { # BLOCKS LENGTH NAME
  whole=$(($2 / 1048576)) over=$((($2 % 1048576 + 1048575) / 1048576))
  sum=$({ { { read_blocks "$1" $((whole + over)) "$3"; cat /dev/zero; } | take_data "$2" | tee /dev/fd/3 | { sum=$(digest) && printf '=%s\n' "$sum"; } >&4; } 3>&1 | pump; } 4>&1 8>&1)
  # Either line may be the first.
  case $sum in *" $whole+$over records in"*) status=0 ;; *) status=1 ;; esac
  sum=${sum##*=} sum=${sum%%
*}
  printf 'R %s %s %s\n' "$sum" "$status" "$(stat -c '%s %Y' "$3" 2>/dev/null </dev/null)"
}
# The number of blocks that were read to fd 8, or a word if that failed.
read_blocks() { # SKIP COUNT NAME
  report=failed
  # shellcheck disable=SC2094 # `opened` compares the name
  if [ -f "$3" ]; then
    { if opened "$3"; then report=$(dd bs=1048576 skip="$1" count="$2" iflag=fullblock 2>&1 >&7) || report=failed; fi; } 2>/dev/null 7>&1 <"$3"
  fi
  case $report in *' records in'*) report=${report%%' records in'*} report="${report##*
} records in" ;; esac
  printf ' %s\n' "$report" >&8
}
# Whether stdin is the file $1 itself, not the target of a link: opened first, then compared.
opened() { [ "$(readlink -n /proc/self/fd/0; printf .)" = "$base/${1#./}." ]; }
# shellcheck disable=SC2094
prefix_digest() { [ ! -f "$2" ] || { if opened "$2"; then take_data "$1" | digest; fi; } 2>/dev/null <"$2"; }
exec 5>&1 6<&0
missing=0
for tool in id tar find sha256sum dd sync stat xargs tee readlink; do command -v "$tool" >/dev/null 2>&1 || missing=$tool; done
deref=''
case $(tar --version 2>/dev/null | head -n 1) in *GNU*) deref='--format=gnu --hard-dereference --no-recursion' ;; esac
# One spelling of the path: a bash keeps `//` at its beginning.
while case $root in //*) true ;; *) false ;; esac; do root=${root#/}; done
while case $root in ?*/) true ;; *) false ;; esac; do root=${root%/}; done
exists=0 near=$root
if [ -d "$root" ] && cd -P "$root" 2>/dev/null; then
  exists=1 top=$PWD
else
  while [ ! -d "$near" ] && [ -n "$near" ] && [ "$near" != / ]; do case $near in */*) near=${near%/*} ;; *) near='' ;; esac; done
fi
base=${top%/} parts=0 marked=0
if [ "$exists" = 1 ] && is_marked; then marked=1; else case $why in *'another path'*) marked=2 ;; esac; fi
for p in "$base/$part"/[0-9a-f]*; do [ ! -f "$p" ] || parts=$((parts + 1)); done
free_space "${near:-/}"
# What is below a directory that may not be entered is not missing: it cannot be seen.
if [ "$exists" = 0 ] && { [ -e "$root" ] || [ -L "$root" ] || ! may_enter "${near:-/}"; }; then exists=2; fi
printf 'H %s %s %s %s %s %s\n' "$exists" "$free" "$parts" "$missing" "$marked" "$(one_line "${top:-$root}")"
while read -r c a b d e f g h; do
  case $c in
    '' | *[0-9]*) ;;
    T) listing list_tree ;;
    L) listing list_children ;;
    S) listing list_names "$a" ;;
    M) if [ "$exists" != 1 ]; then err=$(mkdir -p "$root" 2>&1) || fail "$err"; cd -P "$root" || fail "$root: no permission"; top=$PWD exists=1; fi; printf 'M\n' ;;
    A) patiently receive_archive "$a" "$b" ;;
    Q) patiently partly "$a" ;;
    B) patiently receive_big "$a" "$b" "$d" "$e" "$f" "$g" "$h" ;;
    W) mark_directory ;;
    D) patiently remove_names "$a" ;;
    C) begin_writing; mode=$a; export mode; take "$b" >"$work/names" || fail "$work: the disk is full"; patiently each "$set_mode" <"$work/names"; printf 'C\n' ;;
    G) send_files "$a" ;;
    P) name=$(take "$b"; printf .); sum=$(patiently prefix_digest "$a" "${name%.}"); printf 'P %s\n' "$sum" ;;
    R) name=$(take "$d"; printf .); send_big "$a" "$b" "${name%.}" ;;
    Z) break ;;
    *) fail "unknown command $c" ;;
  esac
done
[ -z "$work" ] || { rm -rf "$work"; exec 4<&-; rmdir "$base/$part" 2>/dev/null; }
exit 0
