#!/bin/sh
# One worker per GPU: `sh <run dir>/processes FIRST COUNT [DEVICE...]`. FIRST is the global rank of the first one; DEVICE is the GPU that a
# worker sees, if each sees only its own. Waits for all and exits like the first failed one, by rank.
# What the workers are given: this shell's own variables may have the name of one that is exported. No variable of a user is named orch_ or ORCH_.
orch_env=$(export -p)
R=${0%/*}
first=$1 count=$2
shift 2
i=0 pids=''
while [ "$i" -lt "$count" ]; do
  (
    # The positional parameters have no name that could be met.
    set -- "$R/worker" $((first + i)) "$i" "$@"
    # As in worker.sh.
    # shellcheck disable=SC3040
    if (set +o posix) 2>/dev/null; then set +o posix; fi
    eval "$orch_env" 2>/dev/null
    RANK=$2 LOCAL_RANK=$3 JAX_PROCESS_ID=$2 JAX_LOCAL_DEVICE_IDS=$3
    export RANK LOCAL_RANK JAX_PROCESS_ID JAX_LOCAL_DEVICE_IDS
    if [ $# -gt 3 ]; then
      CUDA_VISIBLE_DEVICES=$4 JAX_LOCAL_DEVICE_IDS=0
      export CUDA_VISIBLE_DEVICES
    fi
    exec /bin/sh "$1"
  ) &
  pids="$pids $!"
  if [ $# -gt 0 ]; then shift; fi
  i=$((i + 1))
done
trap : TERM INT HUP
rc=0
for pid in $pids; do
  # A signal ends the wait, not the worker.
  while :; do
    wait "$pid"
    r=$?
    kill -0 "$pid" 2>/dev/null || break
  done
  [ "$rc" -ne 0 ] || rc=$r
done
exit "$rc"
