#!/bin/sh
# One worker process: its own log, pid and exit status, whichever launcher started it. Started as `sh <host>.in/<run>/worker` with RANK in the
# environment; the command is in worker.argv, byte for byte. Ends the way the command ended, by the same signal where it was one.
# What the command is given: this shell's own variables may have the name of one that is exported. No variable of a user is named orch_ or ORCH_.
orch_env=$(export -p)
R=${0%/*} F=${0%/*/*} waited=''
F=${F%.in}.out/${R##*/}.
# shellcheck source=assets/lib.sh
. "$R/lib"
# torch does not count a restart that only changes the gang's members, but each life needs its own files.
life=${TORCHELASTIC_RESTART_COUNT:-0}
while [ -e "${F}rank-${RANK:?the launcher gave no RANK}.$life.pid" ]; do life=$((life + 1)); done
base=rank-$RANK.$life
mask=$(umask); umask 022
# shellcheck source=assets/pipe.sh
. "$R/pipe"
exec </dev/null
log_through "$base"
umask "$mask"
# From here on a signal leaves a status.
child='' signaled=''
trap 'signaled=TERM; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
trap 'signaled=INT; [ -z "$child" ] || kill -INT "$child" 2>/dev/null' INT
record "$base"
# shellcheck source=/dev/null
. "$R/worker.argv"
rc=143
[ "$signaled" != INT ] || rc=130
# Not started and then signaled: a shell that forks may lose a signal.
if [ -z "$signaled" ]; then
  # Bash's SHELLOPTS and BASHOPTS are readonly: in its POSIX mode the shell would end here. They keep the value that they were given.
  # shellcheck disable=SC3040
  (if (set +o posix) 2>/dev/null; then set +o posix; fi
    eval "$orch_env" 2>/dev/null
    exec "$@") & child=$!
  [ -z "$signaled" ] || { sleep 1; kill -"$signaled" "$child" 2>/dev/null; }
  while :; do
    signaled=
    # Where the command ended by a signal, the shell writes that here: the log has only what the rank wrote.
    wait "$child" 2>/dev/null; r=$?
    [ "$r" -eq 127 ] && [ -n "$waited" ] && break
    rc=$r; waited=1
    [ -n "$signaled" ] || break
  done
fi
umask 022
# Another signal would end the shell that computes the status, and the status would be empty.
trap '' TERM INT
ended "$base" "$rc"
if [ "$rc" -gt 128 ] && [ "$rc" -lt 160 ]; then
  # No core dump of this shell; dash, bash and busybox support the option.
  # shellcheck disable=SC3045
  ulimit -c 0 2>/dev/null
  trap - TERM INT
  kill -"$((rc - 128))" $$
fi
exit "$rc"
