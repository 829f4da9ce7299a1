#!/bin/sh
# Once on every node, before the ranks start: `sh <job directory>/files/look`. Writes nodes/<node>: its node rank, and the address and
# interface by which it reaches the others.
dir=${0%/*/*}
fail() { printf 'orchestrate: %s: %s\n' "$host" "$*" >&2; exit 1; }
host=${SLURMD_NODENAME:-}
case $host in '' | *[!A-Za-z0-9._-]*) fail 'SLURM gives this node no name' ;; esac
# shellcheck source=/dev/null
. "$dir/job.env" || fail "cannot read $dir: set run_dir to a directory that all nodes share"

rank='' i=0
while read -r node; do
  [ "$node" != "$host" ] || rank=$i
  i=$((i + 1))
done <"$dir/node-list"
[ -n "$rank" ] || fail "it is not in the list of the job's nodes"

# The master looks towards the second node, the others towards the master.
if [ "$rank" = 0 ]; then peer=$(sed -n 2p "$dir/peers"); else peer=$(sed -n 1p "$dir/peers"); fi
address='' interface=''
if [ -r "$dir/files/fabric" ]; then address=$(sed -n "s/^$host //p" "$dir/files/fabric"); fi
if [ -z "$address" ] && [ "$i" = 1 ]; then
  address=127.0.0.1
elif [ -z "$address" ]; then
  to=$({ getent ahostsv4 "$peer" || getent ahosts "$peer"; } 2>/dev/null | sed -n '1s/ .*//p')
  address=$(ip -o route get "${to:-none}" 2>/dev/null | sed -n 's/.* src \([^ ]*\).*/\1/p')
  [ -n "$address" ] || fail "no route to $peer: set fabric_address for this host in the inventory"
fi
case $address in *:*) fail "$address: IPv6 is not supported yet on SLURM" ;; esac
interface=$(ip -o addr show to "$address" 2>/dev/null | sed -n '1s/^[0-9]*: *\([^ ]*\).*/\1/p')

{
  printf "ORCH_HOST='%s'\nORCH_NODE_RANK='%s'\nORCH_FIRST_RANK='%s'\n" "$host" "$rank" $((rank * ORCH_RANKS_PER_NODE))
  printf "ORCH_IS_MASTER='%s'\nORCH_ADDRESS='%s'\nORCH_INTERFACE='%s'\n" "$([ "$rank" = 0 ] && echo 1 || echo 0)" "$address" "$interface"
} >"$dir/nodes/$host"
