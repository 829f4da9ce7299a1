#!/bin/sh
# One worker per GPU: `sh <run dir>/processes FIRST COUNT [DEVICE...]`. FIRST is the global rank of the first one; DEVICE is the GPU that a
# worker sees, if each sees only its own. Waits for all and exits like the first failed one, by rank.
R=${0%/*}
first=$1 count=$2
shift 2
i=0 pids=''
while [ "$i" -lt "$count" ]; do
  RANK=$((first + i)) LOCAL_RANK=$i JAX_PROCESS_ID=$((first + i)) JAX_LOCAL_DEVICE_IDS=$i
  export RANK LOCAL_RANK JAX_PROCESS_ID JAX_LOCAL_DEVICE_IDS
  if [ $# -gt 0 ]; then
    CUDA_VISIBLE_DEVICES=$1 JAX_LOCAL_DEVICE_IDS=0
    export CUDA_VISIBLE_DEVICES
    shift
  fi
  /bin/sh "$R/worker" &
  pids="$pids $!"
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
