# shellcheck shell=sh
# The host: processors, memory, shared memory, limits, disks, network interfaces, InfiniBand, name resolution.
# Set before: disks (paths, quoted for eval).
: "${disks:=}"
emit arch "$(uname -m)"
n=$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo 2>/dev/null); emit cpus "$n"
if [ -r /proc/meminfo ]; then
  while read -r k v _; do case $k in MemTotal: | MemAvailable: | MemFree:) emit "memory_${k%:}" "$v" ;; esac; done </proc/meminfo
fi
# The limit of this shell's container or session counts, too.
for f in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  [ -r "$f" ] && { read -r l <"$f"; emit memory_limit "$l"; break; }
done
# shellcheck disable=SC2046
set -- $(df -Pk /dev/shm 2>/dev/null | tail -n 1); emit shm "${2:-} ${4:-}"
# shellcheck disable=SC3045
emit limit_nofile "$(ulimit -n 2>/dev/null)"
# shellcheck disable=SC3045
l=$(ulimit -l 2>/dev/null) && emit limit_memlock "$l"
eval "set -- $disks"
run_dir=$1
for d in "$@"; do
  # shellcheck disable=SC2088
  case $d in '~') d=$HOME ;; '~/'*) d=$HOME/${d#\~/} ;; esac
  while [ ! -e "$d" ] && [ "$d" != / ] && [ -n "$d" ]; do d=${d%/*}; done; d=${d:-/}
  if [ -n "$run_dir" ]; then
    # The first one is the run directory.
    s=$(within 5 stat -f -c %T "$d" 2>/dev/null) || s=$(df -PT "$d" 2>/dev/null | tail -n 1 | { read -r _ s _; printf %s "$s"; })
    emit run_dir_system "${s:--}"
    run_dir=
  fi
  # shellcheck disable=SC2046
  emit disk "$d $(set -- $(df -Pk "$d" 2>/dev/null | tail -n 1); echo "${2:--} ${4:--}") $(set -- $(df -Pi "$d" 2>/dev/null | tail -n 1); echo "${2:--} ${4:--}")"
done
for f in /sys/class/net/*; do
  [ -r "$f/mtu" ] || continue
  i=${f##*/} m='' o='' v=''
  read -r m <"$f/mtu"; { read -r o <"$f/operstate"; } 2>/dev/null; { read -r v <"$f/speed"; } 2>/dev/null
  emit nic "$i ${m:-} ${o:-unknown} ${v:--}"
done
for f in /sys/class/infiniband/*/ports/*; do
  [ -r "$f/state" ] || continue
  p=${f##*/} d=${f%/ports/*} s='' r='' l=''
  read -r s <"$f/state"; { read -r r <"$f/rate"; } 2>/dev/null; { read -r l <"$f/link_layer"; } 2>/dev/null
  emit ib "${d##*/}/$p ${s##*: } ${l:-unknown} $(printf %s "${r:-}" | tr ' ' _)"
done
[ -r /etc/nccl.conf ] && emit nccl_conf "$(sum </etc/nccl.conf)"
{ read -r l </proc/sys/net/ipv4/ip_local_port_range; } 2>/dev/null && emit port_range "$l"
h=$(hostname 2>/dev/null || uname -n); emit hostname "$h"
if has getent; then
  l=$(within 5 getent ahosts "$h" 2>/dev/null | while read -r a _; do printf '%s\n' "$a"; done | sort -u | one); emit own_name "$l"
elif [ -r /etc/hosts ]; then
  l=$(while read -r a n; do case " $n " in *" $h "*) printf '%s\n' "$a" ;; esac; done </etc/hosts | sort -u | one); emit own_name "$l"
fi
emit did host
