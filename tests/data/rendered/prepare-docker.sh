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
  --env=GPUS_PER_NODE=2 \
  --env=MASTER_ADDR=10.0.0.1 \
  --env=MASTER_PORT=29500 \
  --env=NNODES=2 \
  --env=NODE_RANK=1 \
  --env=NPROC_PER_NODE=2 \
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
  --env=RANK=1 \
  --env=WORLD_SIZE=2 \
  --workdir=/work \
  --entrypoint=sh train:1 -c '# task 2: install
(
  if bash -c '\''python -m x --version'\'' >/dev/null 2>&1; then echo '\''task 2: install'\'', skipped: unless succeeded >&2; exit 0; fi
  timeout -k 10 1800 bash -c '\''pip install x'\''
) || exit 1
: "${COMMIT:?the output of task 3 on another host, which commit: export it first}"
cat >/tmp/train.hostfile <<'\''HOSTS'\''
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
