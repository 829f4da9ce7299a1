#!/bin/sh
# One task of `prepare` on one host: its own log, pid and status, like a rank. Started as `sh <host>.in/<run>/task NUMBER [secrets file]`, detached,
# inside the container or on the bare host. It looks whether there is anything to do, runs the script, and tries again, whether a laptop is
# attached or not. Its files, in the directory of this script:
#   task-N         assignments: dir, creates, timeout (seconds), tries, delay (seconds, at least 1), register, become (sudo)
#   task-N.env     exports: the task's environment
#   task-N.run     the script; task-N.unless: the script that succeeds where there is nothing to do
#   registered     exports: the variables that earlier tasks registered
# On the host beside a container this directory is `<host>.private/host.in/<run>`. The container's keeper then sees `task-N.host` in the directory of
# what the container is given, as long as the task runs.
# Beside its status it writes one word: ran, or why it did not: creates, unless, chdir, bash, timeout, value; missing: it ran and made no file that
# `creates` matches. A registered value is left in task-N.value, 4097 bytes at most; the number of its bytes follows the word.
R=${0%/*} F=${0%/*/*} n=$1
F=${F%.in}.out/${R##*/}.
# shellcheck source=assets/lib.sh
. "$R/lib"
base=task-$n signaled='' word='ran' size='' beside=''
case $R in *.private/host.in/*) beside=${R%.private/host.in/*}.in/${R##*/}/$base.host ;; esac
mask=$(umask); umask 022
# shellcheck source=assets/pipe.sh
. "$R/pipe"
exec </dev/null
log_through "$base"
record "$base"
if [ -n "$beside" ]; then : >"$beside"; ORCH_HOST_TASK=${R##*/}; export ORCH_HOST_TASK; fi
umask "$mask"
trap 'signaled=1' TERM INT
trap : HUP
finish() { # STATUS WORD
  umask 022
  # Another signal would end the shell that computes the status, and the status would be empty.
  trap '' TERM INT HUP
  ended "$base" "$1" "$2"
  [ -z "$beside" ] || rm -f "$beside"
  exit "$1"
}
fail() { printf 'orchestrate: %s\n' "$2"; finish 125 "$1"; }
if [ -n "$2" ]; then
  { ORCH_SECRETS=$(cat "$2") && export ORCH_SECRETS && rm -f "$2"; } || fail secrets 'the secrets did not arrive'
fi
dir='' creates='' timeout=1800 tries=1 delay=1 register='' become='' root='' root_dir=''
# shellcheck source=/dev/null
. "$R/$base"
command -v bash >/dev/null 2>&1 || fail bash 'bash is missing'
# shellcheck disable=SC2088
case $dir in
  '~') dir=$HOME ;;
  '~/'*) dir=$HOME/${dir#\~/} ;;
esac
# shellcheck disable=SC2088
case $creates in '~/'*) creates=$HOME/${creates#\~/} ;; esac
# Root may see directories that this user does not.
if [ "$become" = sudo ]; then root='sudo -n' root_dir=$dir dir=''; fi
# The directory may be what `creates` is about, or what the script makes in its first try.
if [ -n "$dir" ]; then cd -- "$dir" || fail chdir "no directory $dir"; fi

# exists: whether the pattern in creates matches. Nothing in it is special but the pattern's characters.
# shellcheck disable=SC2016
EXISTS='[ -z "$2" ] || cd -- "$2" || exit 1
IFS=
for f in $1; do if [ -e "$f" ] || [ -L "$f" ]; then exit 0; fi; done
exit 1'
exists() { $root /bin/sh -c "$EXISTS" sh "$creates" "$root_dir" 2>/dev/null; }

# seconds: sets up to the seconds since boot.
seconds() { up=''; { read -r up _ </proc/uptime; } 2>/dev/null; up=${up%%.*}; case $up in '' | *[!0-9]*) up=$(date +%s) ;; esac; }

# The variables are set in the shell that becomes bash: there they can have any name, here they would be this script's own.
# shellcheck disable=SC2016
SCRIPT='eval "$ORCH_SECRETS"; unset ORCH_SECRETS
if [ -r "$0/registered" ]; then . "$0/registered"; fi
. "$0/$1.env"
exec bash "$0/$2"'

# sudo passes no variables on: they come through its standard input.
# shellcheck disable=SC2016
AS_ROOT='{ printf "%s\n" "$ORCH_SECRETS"; if [ -r "$0/registered" ]; then cat "$0/registered"; fi; cat "$0/$1.env"; } |
  env -u ORCH_SECRETS sudo -n $3 /bin/sh -c "$5" "$0/$2" "$4"'
# shellcheck disable=SC2016
ROOT_SCRIPT='eval "$(cat)"
exec </dev/null
[ -z "$1" ] || cd -- "$1" || exit 125
exec bash "$0"'

# script NAME: runs it in bash, with the variables, within the timeout.
script() {
  if [ -n "$root" ]; then bounded /bin/sh -c "$AS_ROOT" "$R" "$base" "$1" "$root_within" "$root_dir" "$ROOT_SCRIPT"
  else bounded /bin/sh -c "$SCRIPT" "$R" "$base" "$1"; fi
}

# stopping: whether the run is being stopped. Then reap.sh ends every process after the run's own grace period.
stopping() { [ -n "$signaled" ] || [ -e "$R/stopped" ]; }

# bounded COMMAND...: runs it in a process group of its own, which is ended after the timeout: TERM, ten seconds later KILL. What a command leaves
# that failed ends with it: the next try finds nothing of it, except of what root left, which ends with the run.
within='' apart='' root_within=''
if timeout -k 1 5 true 2>/dev/null; then
  within="timeout -k 10 $timeout"
  # Only root can end what root runs: its own timeout comes first.
  if [ -n "$root" ]; then root_within=$within within="timeout -k 10 $((timeout + 15))"; fi
  # busybox's becomes the command, and ends it alone: it makes no group.
  # shellcheck disable=SC2016
  if timeout -k 1 5 sh -c '[ "$PPID" = "$1" ]' sh "$$"; then apart='setsid'; fi
else
  apart='setsid'
  printf 'orchestrate: there is no timeout program: the task is not ended after its timeout\n'
fi
[ -z "$apart" ] || command -v setsid >/dev/null || apart=''
bounded() {
  seconds; since=$up
  # shellcheck disable=SC2086
  $apart $within "$@" & group=$!
  # A signal ends the wait and not the command.
  while :; do wait "$group"; status=$?; kill -0 "$group" 2>/dev/null || break; done
  if [ "$status" != 0 ] && ! stopping; then
    seconds
    first=TERM
    # A timeout with a group of its own has sent TERM to all of it.
    case $apart$status in 124 | 137) [ $((up - since)) -lt "$timeout" ] || first=0 ;; esac
    end_group "$group" "$first"
  fi
  return "$status"
}

# end_group PID SIGNAL: ends what is left of a process group: TERM, ten seconds later KILL. SIGNAL 0: it has got its TERM. A process group that does
# not exist is none of ours.
end_group() {
  kill -"$2" "-$1" 2>/dev/null || return 0
  left=100
  while [ "$left" -gt 0 ] && kill -0 "-$1" 2>/dev/null; do
    # From here on the stop's grace period counts.
    stopping && return 0
    left=$((left - 1)); sleep 0.1 2>/dev/null || { sleep 1; left=$((left - 9)); }
  done
  kill -KILL "-$1" 2>/dev/null
  return 0
}

# kept_value: the task's output goes into task-N.value, at most 4097 bytes, the rest is dropped. Sets rc to the task's status and size to the
# number of bytes in the file, which is empty where not all of them are there.
kept_value() {
  # An earlier try's reader may live as long as a process that the try left.
  part=$F$base.value.$try
  rm -f "$F$base.value" "$part"
  # A TERM reaches these subshells too; what the task prints while it saves must still have a reader.
  kept=$(trap : TERM INT; { { trap 'signaled=1' TERM INT; script "$base.run" 3>&-; rc=$?; exec 1>&3; value_is_read
    printf '%s ' "$rc"; [ ! -f "$F$base.value" ] || wc -c <"$F$base.value"; } |
    { exec 4<&0; read_value & }; } 3>&1)
  # shellcheck disable=SC2086
  set -- $kept
  rc=${1:-1} size=$2
  case $size in '' | *[!0-9]*) size='' ;; esac
}

# read_value: descriptor 4 into the file, which is new: no link is followed. It has its name once the input has ended.
read_value() {
  # By `exec`: where a function is redirected, dash keeps the descriptors open that the others wait for.
  exec <&4 4<&- 3>&- >/dev/null 2>&1
  trap '' TERM INT
  umask 022
  # What dd writes is in the file at once.
  if (set -C; exec >"$part" && dd bs=1 count=4097); then mv -f "$part" "$F$base.value"; else rm -f "$part"; fi
  cat
}

# value_is_read: waits for the file. A process that the script left may have its output for ever: then the value is what came until now.
value_is_read() {
  left=50
  while [ "$left" -gt 0 ] && ! [ -f "$F$base.value" ]; do
    left=$((left - 1)); sleep 0.1 2>/dev/null || { sleep 1; left=$((left - 9)); }
  done
  { mv -f "$part" "$part.cut" && { (umask 022; set -C; head -c 4097 "$part.cut" >"$F$base.value") || { rm -f "$F$base.value"; false; }; }; } 2>/dev/null &&
    printf 'orchestrate: a process of the script still has its output: the value is what came until now\n' >&2
  rm -f "$part.cut"
}

if [ -n "$creates" ] && exists; then finish 0 creates; fi
if [ -r "$R/$base.unless" ] && script "$base.unless" >/dev/null 2>&1; then finish 0 unless; fi
# A stop that came while this started has found nothing to end.
if stopping; then finish 143 ran; fi
try=1
while :; do
  seconds; began=$up
  if [ -n "$register" ]; then kept_value; else script "$base.run"; rc=$?; fi
  word='ran'
  seconds
  case $rc in 124 | 137 | 143) if [ $((up - began)) -ge "$timeout" ]; then word='timeout'; printf 'orchestrate: ended after %s s\n' "$timeout"; fi ;; esac
  if [ "$rc" = 0 ] && [ -n "$register" ] && [ -z "$size" ]; then rc=125 word='value'; fi
  if [ "$rc" = 0 ] || [ -n "$signaled" ] || [ "$try" -ge "$tries" ]; then break; fi
  try=$((try + 1))
  printf 'orchestrate: status %s; try %s of %s follows\n' "$rc" "$try" "$tries"
  # An order to stop ends the script first and this shell a moment later. `wait` ends with the signal.
  sleep "$delay" & nap=$!
  wait "$nap"
  if stopping; then kill "$nap" 2>/dev/null; break; fi
done
if [ "$rc" = 0 ] && [ -n "$creates" ] && ! exists; then word='missing'; fi
finish "$rc" "$word${size:+ $size}"
