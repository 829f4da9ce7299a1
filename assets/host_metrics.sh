# shellcheck shell=sh
# Prints metrics of a host's GPUs, processors, memory and networks, one line each, until stdin ends.
#   Q <GPUs> <fields>          the fields that this nvidia-smi supports, and the number of lines per round
#   g <values>                 a GPU of a round
#   E <text>                   nvidia-smi does not respond; it is queried again
#   a+ | a <ours> <user> <pid>, <uuid>, <MiB>, <name> | a.     the processes on the GPUs
#   h <load> <KiB> <KiB available> <busy> <all>                processor times since boot, in ticks
#   n <network> <bytes in> <bytes out>                         since boot
#   i <device/port> <words in> <words out> <state> <rate>      InfiniBand; a word has four bytes
#   t                          the end of a round of h, n and i
# Set before: every (seconds), fields (comma-separated), run, init (pid of the container's first process; empty: none).
: "${every:=2}" "${fields:=index}" "${run:=}" "${init:=}"
within() { s=$1; shift; if command -v timeout >/dev/null 2>&1; then timeout "$s" "$@"; else "$@"; fi; }
query() { nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits "$@" 2>&1; }

# An unknown field fails the whole query: retry without it.
known() {
  while :; do
    output=$(within 60 nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits 2>&1) && return 0
    case $output in *'Field "'*'is not a valid field'*) ;; *) return 1 ;; esac
    bad=${output#*Field \"} bad=${bad%%\"*} left=
    IFS=,
    for f in $fields; do [ "$f" = "$bad" ] || left=$left${left:+,}$f; done
    unset IFS
    if [ "$left" = "$fields" ] || [ -z "$left" ]; then return 1; fi
    fields=$left
  done
}

# One looping nvidia-smi: starting one per sample takes a second and wakes the driver.
gpus() {
  while :; do
    if known; then
      printf 'Q %s %s\n' "$(printf '%s\n' "$output" | grep -c .)" "$fields" || exit 0
      query -l "$every" | while IFS= read -r l; do printf 'g %s\n' "$l" || exit 0; done
      printf 'E nvidia-smi has ended\n' || exit 0
    else
      printf 'E %s\n' "$(printf '%s' "$output" | grep . | head -n 1 | cut -c1-300)" || exit 0
    fi
    sleep 10
  done
}

# A process is ours if it has the run's mark, or is in the container's own cgroup.
ours() {
  if grep -qsF "ORCH_RUN_ID=$run" "/proc/$1/environ"; then return 0; fi
  [ -n "$group" ] && [ "$group" = "$(cat "/proc/$1/cgroup" 2>/dev/null)" ]
}

processes() {
  group=
  if [ -n "$init" ]; then group=$(cat "/proc/$init/cgroup" 2>/dev/null); fi
  if [ "$group" = "$(cat /proc/self/cgroup 2>/dev/null)" ]; then group=; fi
  while :; do
    if output=$(within 30 nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory,process_name --format=csv,noheader,nounits 2>/dev/null); then
      printf 'a+\n' || exit 0
      printf '%s\n' "$output" | head -n 512 | while IFS= read -r l; do
        pid=${l%%,*}
        case $pid in '' | *[!0-9]*) continue ;; esac
        # shellcheck disable=SC2046,SC2012
        set -- $(ls -ld "/proc/$pid" 2>/dev/null)
        mine=0
        if ours "$pid"; then mine=1; fi
        printf 'a %s %s %s\n' "$mine" "${3:--}" "$l"
      done
      printf 'a.\n' || exit 0
    fi
    sleep $((every * 3))
  done
}

machine() {
  while :; do
    load=- total=0 free=0 busy=0 all=0
    { read -r load _; } 2>/dev/null </proc/loadavg
    while read -r k v _; do case $k in MemTotal:) total=$v ;; MemAvailable:) free=$v ;; esac; done 2>/dev/null </proc/meminfo
    if { read -r _ u n s i w q f v _; } 2>/dev/null </proc/stat; then busy=$((u + n + s + q + f + v)) all=$((u + n + s + i + w + q + f + v)); fi
    printf 'h %s %s %s %s %s\n' "$load" "$total" "$free" "$busy" "$all" || exit 0
    tr ':' ' ' 2>/dev/null </proc/net/dev | while read -r d in _ _ _ _ _ _ _ out _; do
      case $d in Inter-* | face | lo | docker* | veth* | br-* | virbr* | cali* | flannel* | tunl* | ifb*) ;; *) printf 'n %s %s %s\n' "$d" "$in" "$out" ;; esac
    done | head -n 32
    for p in /sys/class/infiniband/*/ports/*; do
      { read -r in <"$p/counters/port_rcv_data" && read -r out <"$p/counters/port_xmit_data" && read -r state <"$p/state" && read -r rate <"$p/rate"; } 2>/dev/null || continue
      d=${p#/sys/class/infiniband/}
      printf 'i %s/%s %s %s %s %s\n' "${d%%/*}" "${p##*/}" "$in" "$out" "${state#*: }" "$rate"
    done
    printf 't\n' || exit 0
    sleep "$every"
  done
}

if command -v nvidia-smi >/dev/null 2>&1; then
  gpus </dev/null &
  processes </dev/null &
fi
machine </dev/null &
# The reader is gone: end everything that this script started. The process group is that of its session.
cat >/dev/null
trap : TERM
kill 0
exit 0
