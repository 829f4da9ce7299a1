#!/bin/sh
# train on gpu02: node rank 1 of 2; start the master first, gpu01.
# Run it: ssh gpu02 sh <gpu02.sh
# shellcheck disable=SC2016
set -eu

main() {
export JAX_COORDINATOR_ADDRESS=10.0.0.1:29500
export JAX_COORDINATOR_BIND_ADDRESS=0.0.0.0:29500
export JAX_NUM_PROCESSES=4
export LOCAL_WORLD_SIZE=2
export MASTER_ADDR=10.0.0.1
export MASTER_PORT=29500
export NNODES=2
export NODE_RANK=1
export OMP_NUM_THREADS=8
export ORCH_GPUS_PER_NODE=2
export ORCH_HOST=gpu02
export ORCH_HOSTS=gpu01,gpu02
export ORCH_MASTER_ADDR=10.0.0.1
export ORCH_MASTER_PORT=29500
export ORCH_NAME=train
export ORCH_NNODES=2
export ORCH_NODE_RANK=1
export ORCH_RUN_ID=20261121-101500-ab12
export ORCH_WORLD_SIZE=4
export PYTHONUNBUFFERED=1
export WORLD_SIZE=4
cd /home/me/work
exec bash -c 'cat >/tmp/train.hostfile <<'\''HOSTS'\''
gpu01 slots=2
gpu02 slots=2
HOSTS
export ORCH_HOSTFILE=/tmp/train.hostfile
[ -n "${GLOO_SOCKET_IFNAME+set}" ] || export GLOO_SOCKET_IFNAME=bond0
[ -n "${NCCL_SOCKET_IFNAME+set}" ] || export NCCL_SOCKET_IFNAME='\''=bond0'\''
pids='\'''\'' status=0
(
export JAX_LOCAL_DEVICE_IDS=0 JAX_PROCESS_ID=2 LOCAL_RANK=0 RANK=2
source ~/venv/bin/activate
exec python3 train.py
) &
pids="$pids $!"
(
export JAX_LOCAL_DEVICE_IDS=1 JAX_PROCESS_ID=3 LOCAL_RANK=1 RANK=3
source ~/venv/bin/activate
exec python3 train.py
) &
pids="$pids $!"
for pid in $pids; do wait "$pid" || status=$?; done
exit "$status"
'
}

main </dev/null
