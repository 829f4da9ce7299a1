# shellcheck shell=sh
# Functions that keeper, node, worker and reap share. POSIX sh; needs /proc (Linux) or ps, and date, grep, sleep, mv, rm.
# Sourced with F = the path prefix of the files that a run's processes write: `<out directory>/<run>.`
# Creates files only, no directories: the ssh user must be able to remove everything.

# now: seconds since 1970, with a fraction where date has one.
now() { n=$(date +%s.%N 2>/dev/null) || n=; case $n in ''|*N*) date +%s ;; *) printf '%s\n' "$n" ;; esac; }

# born PID: the process's start time, which distinguishes it from a later one with the same pid; empty if it is gone or a zombie.
born() {
  case $1 in '' | *[!0-9]*) return 0 ;; esac
  if [ -r "/proc/$1/stat" ]; then
    { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    case $1 in Z | X) ;; *) printf '%s\n' "${20}" ;; esac
  elif ! [ -d /proc/self ]; then
    ps -o lstart= -p "$1" 2>/dev/null | tr -s ' ' '_'
  fi
}

# boot: the boot id; a pid of another boot belongs to a foreign process.
boot() { b=-; { read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null; printf '%s\n' "$b"; }

# write FILE TEXT: atomically.
write() { printf '%s\n' "$2" >"$1.new" && mv -f "$1.new" "$1"; }

# record BASE: records this process as the wrapper of BASE and reserves space for its status, so that a full disk cannot prevent it. The status of
# an earlier life is removed last.
record() {
  printf '%63s\n' '' >"$F$1.rc.new"
  write "$F$1.pid" "$$ $(born $$) $(now) $(boot)"
  rm -f "$F$1.rc"
}

# ended BASE STATUS [WORD]: overwrites the reserved space. Blanks follow the time, or a task's word and blanks.
ended() {
  status=$(printf '%-63s' "$2 $(now) $3")
  { printf '%s\n' "$status" 1<>"$F$1.rc.new" && mv -f "$F$1.rc.new" "$F$1.rc"; } 2>/dev/null || { rm -f "$F$1.rc.new"; write "$F$1.rc" "$status"; }
}

# drained: waits, two seconds at most, until the appenders of the logs have ended.
drained() {
  i=0
  while [ "$i" -lt 20 ]; do
    open=''
    for f in "${F}node.pid" "$F"rank-*.pid "$F"task-*.pid; do if [ -e "$f" ] && [ ! -e "${f%.pid}.end" ]; then open=1; break; fi; done
    [ -n "$open" ] || return 0
    i=$((i + 1))
    sleep 0.1 2>/dev/null || { sleep 1; i=$((i + 9)); }
  done
}

# regular FILE: whether it can be read without waiting for a writer.
regular() { [ -f "$1" ] && [ ! -L "$1" ]; }

# alive BASE: whether the wrapper of BASE still runs.
alive() {
  regular "$F$1.pid" || return 1
  { read -r pid start _ at <"$F$1.pid"; } 2>/dev/null || return 1
  [ -n "$pid" ] && [ "$at" = "$(boot)" ] && [ "$(born "$pid")" = "$start" ]
}
