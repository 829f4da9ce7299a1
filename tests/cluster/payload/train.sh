#!/usr/bin/env bash
# A shell script around torchrun, with the variables that a user would export by hand on each host.
set -euo pipefail
: "${NPROC_PER_NODE:=1}" "${WORLD_SIZE:=1}" "${NODE_RANK:=0}" "${MASTER_ADDR:=localhost}" "${MASTER_PORT:=29500}"
echo "host $NODE_RANK of $WORLD_SIZE starts $NPROC_PER_NODE processes"
exec torchrun --nproc_per_node="$NPROC_PER_NODE" --nnodes="$WORLD_SIZE" --node_rank="$NODE_RANK" \
    --master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" "$@"
