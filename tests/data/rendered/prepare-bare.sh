#!/bin/sh
# train on gpu02: node rank 1 of 2; start the master first, gpu01.
# Run it: ssh gpu02 sh <gpu02.sh
# shellcheck disable=SC2016
set -eu

main() {
# task 2: install
(
  if bash -c 'python -m x --version' >/dev/null 2>&1; then echo 'task 2: install', skipped: unless succeeded >&2; exit 0; fi
  timeout -k 10 1800 bash -c 'pip install x'
) || exit 1
: "${COMMIT:?the output of task 3 on another host, which commit: export it first}"
export GPUS_PER_NODE=2
export MASTER_ADDR=10.0.0.1
export MASTER_PORT=29500
export NNODES=2
export NODE_RANK=1
export NPROC_PER_NODE=2
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
export RANK=1
export WORLD_SIZE=2
cd /home/me/work
exec sh -c 'cat >/tmp/train.hostfile <<'\''HOSTS'\''
gpu01 slots=2
gpu02 slots=2
HOSTS
export ORCH_HOSTFILE=/tmp/train.hostfile
[ -n "${GLOO_SOCKET_IFNAME+set}" ] || export GLOO_SOCKET_IFNAME=bond0
[ -n "${NCCL_SOCKET_IFNAME+set}" ] || export NCCL_SOCKET_IFNAME='\''=bond0'\''
exec ./train.sh
'
}

main </dev/null
