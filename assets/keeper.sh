#!/bin/sh
# The process that keeps a host's side of a name in order while no laptop looks: the container's main process, or on a bare host a process of its
# own. Started as `sh <host>.in/keeper`. It launches nothing. It reads what the host's side wrote (in), and writes beside the logs (out). It
#   - notes wrappers that were killed without leaving a status,
#   - notes once a second how far each log has grown (times),
#   - stops this host's ranks when one failed and nobody is attached, or the lease ran out,
#   - forwards TERM to the ranks and waits for them,
#   - ends when the launcher has ended or none started in time, unless it is kept, somebody is attached, or somebody who holds the lock is at work.
H=${0%/*}
out=${H%.in}.out
term='' nap=''
trap 'term=1' TERM INT
trap : HUP
umask 022
seen='' since=$(date +%s)

second() { case $1 in '' | *[!0-9]*) return 1 ;; esac; }
attached() { { read -r beat gone <"$R/attached"; } 2>/dev/null && [ -z "$gone" ] && second "$beat" && [ $((t - beat)) -lt 30 ]; }
stop_ranks() { printf '%s %s\n' "$t" "$1" >>"${F}keeper.log"; sh "$R/reap" stop "$run" "${stop_grace:-60}" >>"${F}keeper.log" 2>&1; }
# failed FILE: whether it is the status of a rank that failed, which is then in $rc. Ranks can make files here that are none.
failed() {
  regular "$1" || return 1
  b=${1#"$F"rank-} b=${b%.rc} rc=''
  case $b in *[!0-9.]* | *.*.* | .* | *.) return 1 ;; *.*) ;; *) return 1 ;; esac
  { read -r rc _ <"$1"; } 2>/dev/null
  case $rc in killed) ;; 0 | '' | *[!0-9]* | ????*) return 1 ;; esac
}
kept() { [ -e "$H/keep" ]; }
# Somebody changes something here: who holds the lock says so every 5 s.
worked_on() { { read -r beat _ <"$H/beat" && second "$beat" && [ "$beat" -gt $((t - 30)) ]; } 2>/dev/null; }
leave() { [ -n "$nap" ] && kill "$nap" 2>/dev/null; [ -z "$seen" ] || drained; exit 0; }

while :; do
  t=$(date +%s) run=
  { read -r run <"$H/current"; } 2>/dev/null
  R=$H/$run F=$out/$run.
  if [ -n "$run" ] && [ -r "$R/settings" ] && [ -r "$R/lib" ]; then
    if [ "$run" != "$seen" ]; then
      seen=$run since=$t sizes=''
      # shellcheck source=/dev/null
      . "$R/settings"
      # shellcheck source=assets/lib.sh
      . "$R/lib"
    fi
    if [ -n "$term" ]; then stop_ranks 'asked to end'; leave; fi
    for f in "${F}node.pid" "$F"rank-*.pid; do
      b=${f#"$F"}; b=${b%.pid}
      regular "$f" && [ ! -e "$F$b.rc" ] && ! alive "$b" && [ ! -e "$F$b.rc" ] && ended "$b" 'killed'
    done
    # shellcheck disable=SC2012
    s=$(LC_ALL=C ls -ln "${F}node.log" "$F"rank-*.log 2>/dev/null | while read -r _ _ _ _ size _ _ _ name; do printf '%s %s\n' "${name#"$F"}" "$size"; done)
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
        if [ "${lease:-0}" -gt 0 ]; then
          { read -r beat _ <"$R/attached"; } 2>/dev/null && second "$beat" || beat=$since
          [ $((t - beat)) -gt "$lease" ] && stop_ranks 'the lease ran out'
        fi
      fi
    elif [ $((t - since)) -gt "${start_timeout:-300}" ] && ! worked_on; then
      kept || attached || leave
    fi
  else
    # A run that was here is gone: the next one gets its time from now on.
    [ -n "$seen" ] && seen='' since=$t
    [ -n "$term" ] && leave
    [ $((t - since)) -gt 600 ] && ! kept && ! worked_on && leave
  fi
  sleep 1 & nap=$!
  wait "$nap"
done
