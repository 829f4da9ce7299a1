#!/bin/sh
# train on gpu02: node rank 1 of 2; start the master first, gpu01.
# Run it: ssh gpu02 sh <gpu02.sh
# shellcheck disable=SC2016
set -eu

main() {
docker image inspect train:1 >/dev/null 2>&1 || docker pull train:1
ib=''
if [ -d /dev/infiniband ]; then ib=--device=/dev/infiniband; fi
lock=--ulimit=memlock=-1
case $(docker run --rm --network=none "$lock" --entrypoint=/bin/sh train:1 -c : </dev/null 2>&1) in *rlimit*) lock='' ;; esac
exec docker run ${ib:+"$ib"} ${lock:+"$lock"} \
  --rm \
  --name=orch-train-gpu02 \
  --init \
  --network=host \
  --shm-size=32g \
  --ulimit=stack=67108864 \
  --ulimit=core=0 \
  --cap-add=IPC_LOCK \
  --gpus=all \
  --env=JAX_COORDINATOR_ADDRESS=10.0.0.1:29500 \
  --env=JAX_COORDINATOR_BIND_ADDRESS=0.0.0.0:29500 \
  --env=JAX_NUM_PROCESSES=4 \
  --env=LOCAL_WORLD_SIZE=2 \
  --env=MASTER_ADDR=10.0.0.1 \
  --env=MASTER_PORT=29500 \
  --env=NNODES=2 \
  --env=NODE_RANK=1 \
  --env=OMP_NUM_THREADS=8 \
  --env=ORCH_GPUS_PER_NODE=2 \
  --env=ORCH_HOST=gpu02 \
  --env=ORCH_HOSTS=gpu01,gpu02 \
  --env=ORCH_MASTER_ADDR=10.0.0.1 \
  --env=ORCH_MASTER_PORT=29500 \
  --env=ORCH_NAME=train \
  --env=ORCH_NNODES=2 \
  --env=ORCH_NODE_RANK=1 \
  --env=ORCH_RUN_ID=20261121-101500-ab12 \
  --env=ORCH_WORLD_SIZE=4 \
  --env=PYTHONUNBUFFERED=1 \
  --env=WORLD_SIZE=4 \
  --workdir=/work \
  --entrypoint=bash train:1 -c 'cat >/tmp/train.hostfile <<'\''HOSTS'\''
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
