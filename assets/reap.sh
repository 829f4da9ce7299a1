#!/bin/sh
# Ends the processes of one run, and no others: sh <run dir>/reap list|stop|kill RUN [GRACE]
# Ours is what carries the run's mark in its environment, belongs to the session or group of a recorded wrapper, or descends from one.
# `stop` sends TERM, waits GRACE seconds, sends KILL and looks again until nothing is left. Prints one line a process that is left.
R=${0%/*}
# shellcheck source=assets/lib.sh
. "$R/lib"
verb=$1 run=$2 grace=${3:-0}
saved='' here=$(boot)

table() { # pid ppid pgrp sid of every process that is no zombie
  if [ -d /proc/self ]; then
    for s in /proc/[0-9]*/stat; do
      { IFS= read -r stat <"$s"; } 2>/dev/null || continue
      p=${s#/proc/}
      # shellcheck disable=SC2086
      set -- ${stat##*) }
      case $1 in Z | X) ;; *) printf '%s %s %s %s ' "${p%/stat}" "$2" "$3" "$4" ;; esac
    done
  else
    # shellcheck disable=SC2009
    ps -A -o pid= -o ppid= -o pgid= -o sess= | tr -s ' \n' ' '
  fi
}

marked() {
  if [ -d /proc/self ]; then
    grep -lsF "ORCH_RUN_ID=$run" /proc/[0-9]*/environ 2>/dev/null
  else
    # shellcheck disable=SC2009
    ps -A -E -o pid= -o command= | grep -F "ORCH_RUN_ID=$run" | grep -v grep | sed 's#^ *\([0-9]*\) .*#/proc/\1/environ#'
  fi
}

scan() { # sets ours
  ours=' '
  for e in $(marked); do e=${e#/proc/}; ours="$ours${e%/environ} "; done
  # The session and group of a recorded wrapper are ours while the wrapper lives, and after its end as long as anyone is left in them: until
  # then the kernel gives its number to nobody else. A number that lives with another start, or is of another boot, is a stranger's.
  roots=' '
  for f in "$R"/node.pid "$R"/rank-*.pid; do
    { read -r pid start _ at <"$f"; } 2>/dev/null || continue
    if [ -z "$start" ] || [ "$at" != "$here" ]; then continue; fi
    case $(born "$pid") in "$start") ours="$ours$pid " roots="$roots$pid " ;; '') roots="$roots$pid " ;; esac
  done
  for e in $saved; do [ "$(born "${e%%:*}")" = "${e#*:}" ] && ours="$ours${e%%:*} "; done
  all=$(table) size=
  while [ "$size" != "${#ours}" ]; do
    size=${#ours}
    # shellcheck disable=SC2086
    set -- $all
    while [ $# -ge 4 ]; do
      case $ours in *" $1 "*) ;; *)
        case $ours in *" $2 "*) ours="$ours$1 " ;; *)
          case $roots in *" $3 "* | *" $4 "*) [ "$1" != $$ ] && ours="$ours$1 " ;; esac
        esac
      esac
      shift 4
    done
  done
  # Only what lives, and never this script.
  found=
  for p in $ours; do
    [ "$p" = $$ ] || [ "$p" = 1 ] && continue
    case " $found " in *" $p "*) continue ;; esac
    b=$(born "$p"); [ -n "$b" ] || continue
    found="$found $p"
    case " $saved " in *" $p:$b "*) ;; *) saved="$saved $p:$b" ;; esac
  done
  ours=$found
}

send() { for p in $ours; do kill -"$1" "$p" 2>/dev/null; done; }

until_gone() { # SECONDS: looks five times a second
  left=$(($1 * 5))
  while scan; [ -n "$ours" ] && [ "$left" -gt 0 ]; do left=$((left - 1)); sleep 0.2 2>/dev/null || { sleep 1; left=$((left - 4)); }; done
  [ -z "$ours" ]
}

report() {
  for p in $ours; do
    c=$(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | cut -c1-120)
    printf 'left %s %s\n' "$p" "$c"
  done
}

scan
case $verb in
  list) ;;
  stop)
    if [ -n "$ours" ]; then printf 'signalled TERM\n'; send TERM; fi
    until_gone "$grace" || { printf 'signalled KILL\n'; send KILL; until_gone 1 || { send KILL; until_gone 4; }; } ;;
  kill) if [ -n "$ours" ]; then printf 'signalled KILL\n'; send KILL; until_gone 1 || { send KILL; until_gone 4; }; fi ;;
esac
report
[ -z "$ours" ]
