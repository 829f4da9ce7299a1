#!/bin/sh
# Ends only the processes of one run: sh <host>.in/<run>/reap list|stop|kill RUN [GRACE]
# or <host>.private/host.in/<run>/reap for tasks on the host beside a container.
# A process is ours if it has the run's mark in its environment, and no other host's directory (two hosts may be one machine), is in the session
# or group of a recorded wrapper, or descends from one.
# `stop` sends TERM, waits GRACE seconds, sends KILL and rechecks until nothing is left. Prints one line per remaining process.
R=${0%/*} F=${0%/*/*}
# shellcheck source=assets/lib.sh
. "$R/lib"
verb=$1 run=$2 grace=${3:-0}
F=${F%.in}.out/$run.
saved='' here=$(boot) mark=ORCH_RUN_ID=$run root='' own=${R%/*}
own=/${own##*/}/${R##*/}
# Tasks on the host beside a container: the container's processes are ended from inside.
case $R in *.private/host.in/*) mark=ORCH_HOST_TASK=$run own=$mark ;; esac
# What a task runs as root is ended by root.
for f in "$R"/task-*; do
  case ${f##*/} in *.*) continue ;; esac
  if grep -qs '^become=sudo$' "$f"; then root='sudo -n'; fi
done

snap() { # sets raw to every process as it is now. One process reads them all: `read` takes a file byte by byte, a thousand in a third of a second
  if [ -d /proc/self ]; then
    raw=$(cat /proc/[0-9]*/stat 2>/dev/null)
  else
    # shellcheck disable=SC2009
    raw=$(ps -A -o pid= -o ppid= -o pgid= -o sess= | tr -s ' \n' ' ')
  fi
}

table() { # pid ppid pgrp sid of every process in raw that is no zombie
  if [ -d /proc/self ]; then
    set -f
    rows=
    IFS='
'
    for stat in $raw; do
      IFS=' '
      # shellcheck disable=SC2086
      set -- "${stat%% *}" ${stat##*) }
      case $2 in Z | X) ;; *) rows="$rows$1 $3 $4 $5 " ;; esac
    done
    printf '%s' "$rows"
  else
    printf '%s' "$raw"
  fi
}

# Reading /proc of a process in state D may hang; KILL ends the reader, and what it found until then counts.
within() { if command -v timeout >/dev/null 2>&1; then timeout -s KILL "$@"; else shift; "$@"; fi; }

marked() {
  if [ -d /proc/self ]; then
    with=$(within 10 grep -lsF "$mark" /proc/[0-9]*/environ 2>/dev/null)
    [ -n "$with" ] || return 0
    # shellcheck disable=SC2086
    within 10 grep -lsF "$own" $with 2>/dev/null
    # shellcheck disable=SC2086
    within 10 grep -LsF ORCH_RUN_DIR= $with 2>/dev/null
  else
    # shellcheck disable=SC2009
    ps -A -E -o pid= -o command= | grep -F "$mark" | grep -v grep | sed 's#^ *\([0-9]*\) .*#/proc/\1/environ#'
  fi
}

known() { # sets ours to the processes that are found without looking at every process
  ours=' '
  for e in $(marked); do e=${e#/proc/}; ours="$ours${e%/environ} "; done
  # The session and group of a recorded wrapper are ours while the wrapper lives, and after its end as long as they have members: until
  # then the kernel does not reuse the id. A pid with another start time or boot id belongs to a foreign process.
  roots=' '
  for f in "${F}node.pid" "$F"rank-*.pid "$F"task-*.pid; do
    regular "$f" || continue
    { read -r pid start _ at <"$f"; } 2>/dev/null || continue
    case $pid in '' | *[!0-9]*) continue ;; esac
    if [ -z "$start" ] || [ "$at" != "$here" ]; then continue; fi
    case $(born "$pid") in "$start") ours="$ours$pid " roots="$roots$pid " ;; '') roots="$roots$pid " ;; esac
  done
}

scan() { known; snap; whole; } # sets ours

whole() { # adds to ours what raw shows to belong to it
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
  # Only live processes, and not this script.
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

# signal NAME PID: by root where the process is not ours to signal, and is still the one that was found.
signal() {
  kill -"$1" "$2" 2>/dev/null && return 0
  [ -n "$root" ] || return 1
  case " $saved " in *" $2:$(born "$2") "*) $root kill -"$1" "$2" </dev/null 2>/dev/null ;; *) return 1 ;; esac
}

send() { for p in $ours; do signal "$1" "$p"; done; }

# relays PID: whether it hands a TERM on to its child, which gets its own from here. Known once all processes are: a `timeout` without a child is
# busybox's, which only watches. GNU's would also send KILL ten seconds later, whatever the grace period.
relays() {
  q=$1 name=''
  { read -r name <"/proc/$q/comm"; } 2>/dev/null
  case $name in timeout | sudo) ;; *) return 1 ;; esac
  [ -n "$all" ] || return 0
  if [ -z "$parents" ]; then
    # shellcheck disable=SC2086
    set -- $all
    while [ $# -ge 4 ]; do parents="$parents $2"; shift 4; done
  fi
  case "$parents " in *" $q "*) ;; *) return 1 ;; esac
}

# program PID: sets name to the program's name, and parent.
program() {
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  name=${stat#*\(} name=${name%) *}
  case $name in '' | *[!A-Za-z0-9._+-]*) return 1 ;; esac
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  parent=$2
}

# subshell PID: notes a process that runs the same program as its parent: it may be about to begin another.
subshell() {
  program "$1" || return 0
  own_name=$name
  if program "$parent" && [ "$name" = "$own_name" ]; then copies="$copies $1:$name"; fi
}

# TERM once per process: a second one makes some programs abort saving.
term() {
  fresh=''
  for p in $ours; do
    [ "$p" = $$ ] || [ "$p" = 1 ] && continue
    # A process may be found in two ways.
    case " $sent $fresh " in *" $p "*) ;; *) fresh="$fresh $p" ;; esac
  done
  # A parent that got its TERM may end at once.
  for p in $fresh; do subshell "$p"; done
  for p in $fresh; do relays "$p" || { signal TERM "$p" && sent="$sent $p"; }; done
}

# A TERM between a shell's fork and its child's exec is lost: the child has the shell's trap until it begins its own program, which gets another.
term_again() {
  all_copies=$copies copies=''
  for e in $all_copies; do
    program "${e%%:*}" || continue
    if [ "$name" = "${e#*:}" ]; then
      copies="$copies $e"
    else
      case " $saved " in *" ${e%%:*}:$(born "${e%%:*}") "*) signal TERM "${e%%:*}" ;; esac
    fi
  done
}

# One that root runs cannot be signaled, but it can be seen.
living() {
  for e in $saved; do
    kill -0 "${e%%:*}" 2>/dev/null && return 0
    [ -z "$root" ] || [ "$(born "${e%%:*}")" != "${e#*:}" ] || return 0
  done
  return 1
}

# saving: whether a process that got TERM is still there.
saving() {
  for e in $saved; do
    case " $sent " in *" ${e%%:*} "*) [ "$(born "${e%%:*}")" != "${e#*:}" ] || return 0 ;; esac
  done
  return 1
}

# Checks the signaled processes five times a second, which is cheap, and all processes every two seconds, which is not: ranks are saving their
# work at this time.
until_gone() { # SECONDS [late]
  left=$(($1 * 5)) look=10
  while [ "$left" -gt 0 ]; do
    look=$((look - 1))
    if [ "$look" -le 0 ] || ! living; then
      look=10
      scan
      [ -n "$ours" ] || return 0
      term_again
      # A process that was started since belongs to how a rank saves its work, until all of them have ended: then it is left behind.
      [ -z "${2:-}" ] || saving || { parents=''; term; sent="$sent$ours"; }
    fi
    left=$((left - 1))
    sleep 0.2 2>/dev/null || { sleep 1; left=$((left - 4)); }
  done
  scan
  [ -z "$ours" ]
}

report() {
  for p in $ours; do
    # shellcheck disable=SC2016
    c=$(within 2 sh -c 'tr "\0" " " <"$0"' "/proc/$p/cmdline" 2>/dev/null | cut -c1-120)
    printf 'left %s %s\n' "$p" "$c"
  done
}

sent='' copies='' all='' parents=''
case $verb in
  list) scan ;;
  stop)
    # The set is taken before TERM. Most processes are found by their mark and get TERM before the rest is determined.
    known; snap; term; whole; term
    [ -z "$sent" ] || printf 'signalled TERM\n'
    [ -z "$ours" ] || until_gone "$grace" late || { printf 'signalled KILL\n'; send KILL; until_gone 1 || { send KILL; until_gone 4; }; } ;;
  kill) scan; if [ -n "$ours" ]; then printf 'signalled KILL\n'; send KILL; until_gone 1 || { send KILL; until_gone 4; }; fi ;;
esac
# Secrets that no wrapper has taken.
case $verb in stop | kill) rm -f /dev/shm/.orch-env.*."$run" 2>/dev/null ;; esac
# The ranks' last output reaches their logs before the container is removed.
case $verb in stop | kill) [ -n "$ours" ] || drained ;; esac
report
[ -z "$ours" ]
