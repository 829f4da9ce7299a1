#!/bin/sh
# Supervises the runs of one name on a host, attached or not: the container's main process, or a separate process on a bare host.
# Started as `sh <host>.in/keeper`. It launches nothing. It reads from the in directory and writes to the out directory. It
#   - records wrappers that were killed without leaving a status,
#   - records the size of each growing log once a second (times),
#   - stops this host's ranks when one failed and no follower is attached, or when the lease expired,
#   - forwards TERM to the ranks and waits for them,
#   - ends when the launcher has ended or none started in time (a task that runs is waited for), unless it is kept, a follower is attached, or the lock's holder is active.
H=${0%/*}
out=${H%.in}.out
term='' nap=''
trap 'term=1' TERM INT
trap : HUP
umask 022
seen=''

# clock: sets up to the seconds since boot, which changes of the wall clock do not affect, and t to the wall clock, for the files.
clock() {
  t=$(date +%s) up=''
  { read -r up _ </proc/uptime; } 2>/dev/null
  up=${up%%.*}
  case $up in '' | *[!0-9]*) up=$t ;; esac
}
# A heartbeat is a text that changed since the last check. Its value is not used: time counts from when the change was seen.
look() {
  sign='' gone=''
  { read -r sign gone <"$R/attached"; } 2>/dev/null
  if [ "$sign $gone" != "$follower" ]; then
    follower="$sign $gone" heard=$up there=''
    if [ -n "$sign" ] && [ -z "$gone" ]; then there=$up; fi
  fi
}
attached() { [ -n "$there" ] && [ $((up - there)) -lt 30 ]; }
stop_ranks() { printf '%s %s\n' "$t" "$1" >>"${F}keeper.log"; sh "$R/reap" stop "$run" "${stop_grace:-60}" >>"${F}keeper.log" 2>&1; }
# failed FILE: whether it is the status file of a failed rank; sets $rc. Ranks can create other files here.
failed() {
  regular "$1" || return 1
  b=${1#"$F"rank-} b=${b%.rc} rc=''
  case $b in *[!0-9.]* | *.*.* | .* | *.) return 1 ;; *.*) ;; *) return 1 ;; esac
  { read -r rc _ <"$1"; } 2>/dev/null
  case $rc in killed) ;; 0 | '' | *[!0-9]* | ????*) return 1 ;; esac
}
# task_lives: whether a task of prepare runs. Its container stays meanwhile, and the time for a launch counts from its end.
task_lives() {
  for f in "$F"task-*.pid; do if regular "$f" && [ ! -e "${f%.pid}.rc" ]; then return 0; fi; done
  # One on the host beside this container.
  for f in "$R"/task-*.host; do if [ -e "$f" ]; then return 0; fi; done
  return 1
}
kept() { [ -e "$H/keep" ]; }
# A command is changing this host: the lock's holder renews its heartbeat every 5 s.
worked_on() {
  sign=''
  { read -r sign <"$H/beat"; } 2>/dev/null
  [ "$sign" = "$holder" ] || holder=$sign worked=$up
  [ -n "$sign" ] && [ $((up - worked)) -lt 30 ]
}
leave() { [ -n "$nap" ] && kill "$nap" 2>/dev/null; [ -z "$seen" ] || drained; exit 0; }

clock
since=$up holder='' worked=$up
while :; do
  clock
  if worked_on; then busy=1; else busy=''; fi
  run=
  { read -r run <"$H/current"; } 2>/dev/null
  R=$H/$run F=$out/$run.
  if [ -n "$run" ] && [ -r "$R/settings" ] && [ -r "$R/lib" ]; then
    if [ "$run" != "$seen" ]; then
      seen=$run since=$up sizes='' follower='' there='' heard=$up
      # shellcheck source=/dev/null
      . "$R/settings"
      # shellcheck source=assets/lib.sh
      . "$R/lib"
    fi
    look
    if [ -n "$term" ]; then stop_ranks 'asked to end'; leave; fi
    for f in "${F}node.pid" "$F"rank-*.pid "$F"task-*.pid; do
      b=${f#"$F"}; b=${b%.pid}
      regular "$f" && [ ! -e "$F$b.rc" ] && ! alive "$b" && [ ! -e "$F$b.rc" ] && ended "$b" 'killed'
    done
    # shellcheck disable=SC2012
    s=$(LC_ALL=C ls -ln "${F}node.log" "$F"rank-*.log "$F"task-*.log 2>/dev/null | while read -r _ _ _ _ size _ _ _ name; do printf '%s %s\n' "${name#"$F"}" "$size"; done)
    if [ "$s" != "$sizes" ]; then
      sizes=$s
      [ "$({ wc -c <"${F}times"; } 2>/dev/null || echo 0)" -lt 16777216 ] && [ -n "$s" ] && printf '%s\n' "$s" | while read -r l; do printf '%s %s\n' "$t" "$l"; done >>"${F}times"
    fi
    if [ -e "${F}node.rc" ]; then
      kept || attached || leave
    elif [ -e "${F}node.pid" ]; then
      if ! attached; then
        for f in "$F"rank-*.rc; do
          [ "${fail_fast:-0}" = 1 ] && failed "$f" && { stop_ranks "${f#"$F"}: $rc, and nobody is attached"; break; }
        done
        [ "${lease:-0}" -gt 0 ] && [ $((up - heard)) -gt "$lease" ] && stop_ranks 'the lease ran out'
      fi
    elif task_lives; then since=$up
    elif [ $((up - since)) -gt "${start_timeout:-300}" ] && [ -z "$busy" ]; then
      kept || attached || leave
    fi
  else
    # The previous run is gone: the next one gets the full time from now on.
    [ -n "$seen" ] && seen='' since=$up
    [ -n "$term" ] && leave
    [ $((up - since)) -gt 600 ] && ! kept && [ -z "$busy" ] && leave
  fi
  sleep 1 & nap=$!
  wait "$nap"
done
