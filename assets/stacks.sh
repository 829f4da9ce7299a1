# shellcheck shell=sh
# Prints the stacks of every rank of this host with the best tool available: py-spy, else gdb, else the kernel's view. Changes nothing and sends
# no signal except CONT to a process that a tool left stopped. Runs where the ranks run. Set before: R (the directory of what the run is given), F (how the paths of its files begin), budget (seconds for all tools together).
#   R <rank> <restart> <pid> <how>   a rank; how: py-spy, gdb, kernel, ended
#   c <command>                      what it runs
#   s <state> <wait channel>         as the kernel reports them
#   t <count> <name>                 its threads by name
#   f <line>                         its stacks, as the tool wrote them
#   u                                it handles SIGUSR1
#   x <text>                         why there is nothing better
#   .                                the end
: "${R:=.}" "${F:=./}" "${budget:=40}"
PATH=$PATH:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/conda/bin; export PATH
# After a reboot another process may have the pid.
# shellcheck source=assets/lib.sh
if [ -r "$R/lib" ]; then . "$R/lib"; else alive() { [ -d "/proc/$pid" ]; }; fi
lines() { head -n 400 | cut -c1-300 | sed 's/^/f /'; }
field() { sed -n "s/^$1:[[:space:]]*//p" "/proc/$2/status" 2>/dev/null | head -n 1; }
begun=$(date +%s)
left() { echo $((budget - $(date +%s) + begun)); }
within() { s=$(left); [ "$s" -gt 0 ] || return 124; [ "$s" -le 10 ] || s=10; timeout -k 3 "$s" "$@"; }

# child PID: its first child.
child() {
  if [ -r "/proc/$1/task/$1/children" ]; then
    # No line end is in it.
    c=; read -r c _ <"/proc/$1/task/$1/children"
    printf '%s\n' "$c"
    return
  fi
  for d in /proc/[0-9]*; do
    [ "$(field PPid "${d#/proc/}")" = "$1" ] && { printf '%s\n' "${d#/proc/}"; return; }
  done
}

# lasts PID: whether it runs for 2 s: a short-lived command of a shell is not the rank.
lasts() {
  { IFS= read -r stat <"/proc/$1/stat" && IFS=. read -r up _ </proc/uptime; } 2>/dev/null || return 1
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ $((up * 100 - ${20})) -ge 200 ]
}

# The rank's process: below our wrapper and below a script's shells.
worker() {
  w=$1 depth=0
  while [ "$depth" -lt 8 ]; do
    n=$(child "$w"); [ -n "$n" ] || break
    if [ "$depth" -gt 0 ]; then lasts "$n" || break; case $(field Name "$w") in sh | bash | dash | ash | busybox) ;; *) break ;; esac; fi
    w=$n depth=$((depth + 1))
  done
  printf '%s\n' "$w"
}

# dump_stack COMMAND…: prints its output as frames; false, with the reason in $why, if there is none.
dump_stack() {
  before=$(field State "$p")
  out=$(within "$@" 2>&1 </dev/null); rc=$?
  # A tool that was killed may have left the process stopped.
  case $before in T* | t*) ;; *) case $(field State "$p") in T* | t*) kill -CONT "$p" ;; esac ;; esac
  case $rc$out in 0*'Thread '*) return 0 ;; esac
  why="$why${why:+; }$1: $(printf '%s\n' "$out" | grep . | tail -n 1 | cut -c1-200)"
  [ -n "$out" ] || why="${why}exit $rc"
  return 1
}

rank() {
  b=${1%.pid} b=${b#"$F"} n=${b#rank-} n=${n%%.*} k=${b##*.}
  { read -r pid _ <"$1"; } 2>/dev/null || return 0
  case $n$k$pid in '' | *[!0-9]*) return 0 ;; esac
  if [ -e "$F$b.rc" ] || ! alive "$b"; then printf 'R %s %s %s ended\n.\n' "$n" "$k" "$pid"; return; fi
  p=$(worker "$pid") why='' how=kernel out=''
  if ! command -v timeout >/dev/null 2>&1; then why='no timeout(1) here'
  elif command -v py-spy >/dev/null 2>&1 && dump_stack py-spy dump --pid "$p"; then how=py-spy
  elif command -v gdb >/dev/null 2>&1 && dump_stack gdb -p "$p" -nx -batch -ex 'thread apply 1 bt 60' -ex 'thread apply all bt 12'; then how=gdb
  elif [ -z "$why" ]; then why='neither py-spy nor gdb here'
  fi
  printf 'R %s %s %s %s\n' "$n" "$k" "$p" "$how"
  printf 'c %s\n' "$(tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | cut -c1-200)"
  { read -r at <"/proc/$p/wchan"; } 2>/dev/null || at=
  printf 's %s %s\n' "$(field State "$p" | cut -c1)" "${at:-0}"
  cat "/proc/$p/task/"[0-9]*/comm 2>/dev/null | sort | uniq -c | sort -rn | head -n 20 | sed 's/^ */t /'
  caught=$(field SigCgt "$p" | sed 's/.*\(...\)$/\1/')
  case $caught in [2367abefABEF]??) printf 'u\n' ;; esac
  if [ "$how" = kernel ]; then
    # Only root may read it.
    { lines <"/proc/$p/stack"; } 2>/dev/null
    printf 'x %s\n' "$why"
  else
    printf '%s\n' "$out" | lines
  fi
  printf '.\n'
}

for f in "$F"rank-*.pid; do
  [ -e "$f" ] && rank "$f"
done
printf 'looked\n'
