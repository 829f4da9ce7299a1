# shellcheck shell=sh
# Collects what a host knows about a failed run; each line begins with its source. Read-only, enters no container.
#   host: restarted while the run was on it
#   docker: status=… exit=… oom-killed=… error=…     or docker's error message
#   cgroup: oom_kill <times since the run began>
#   kernel: <a line of the kernel's log since the run began: memory, GPU, disk, network>
#   disk: <mount point> is full: …
# Set before: F (how the paths of the run's files begin), container (its name; empty: a bare host), init (pid of its first process; empty: none),
# boot (the boot id in which the run was made; empty: as the launcher noted it).
: "${F:=./}" "${container:=}" "${init:=}" "${boot:=}"

# A hanging command loses only its own answer.
T() { if command -v timeout >/dev/null 2>&1; then timeout -k 1 3 "$@"; else "$@"; fi; }

now=$(date +%s) began='' noted='' here='' id=''
read -r _ _ _ began noted _ <<PID
$(cd -P -- "${F%/*}" 2>/dev/null && first_lines "$(pwd -P)" "${F##*/}node.pid")
PID
began=${began%%.*}
case $began in '' | *[!0-9]*) began=$((now - 600)) ;; esac

# After a reboot docker's state only reflects the reboot.
{ read -r here </proc/sys/kernel/random/boot_id; } 2>/dev/null
boot=${boot:-$noted}
case $boot:$here in -:* | :* | *: | "$here:$here") boot='' ;; *) printf 'host: restarted while the run was on it\n' ;; esac

if [ -n "$container" ] && [ -z "$boot" ]; then
  output=$(D inspect --type container --format 'id={{.Id}} status={{.State.Status}} exit={{.State.ExitCode}} oom-killed={{.State.OOMKilled}} error={{.State.Error}}' "$container" 2>&1)
  case $output in id=*' status='*) id=${output%% *} id=${id#id=} output=${output#* } ;; esac
  case $id in *[!0-9a-f]*) id='' ;; esac
  printf 'docker: %s\n' "$(printf '%s\n' "$output" | grep . | head -n 1 | cut -c1-400)"
fi

# The cgroup's OOM counter, version 2 or 1; a kept container's counter includes earlier runs.
if [ -n "$init" ] && [ -r "/proc/$init/cgroup" ]; then
  two=$(sed -n 's/^0:://p' "/proc/$init/cgroup")
  one=$(sed -n 's/^[0-9]*:\([^:]*,\)\{0,1\}memory\(,[^:]*\)\{0,1\}://p' "/proc/$init/cgroup")
  for f in "/sys/fs/cgroup$two/memory.events" "/sys/fs/cgroup/memory$one/memory.oom_control"; do
    n=$(sed -n 's/^oom_kill //p' "$f" 2>/dev/null)
    before=0
    read -r _ _ before <<OOM
$(cd -P -- "${F%/*}" 2>/dev/null && first_lines "$(pwd -P)" "${F##*/}oom")
OOM
    number "$before" || before=0
    case $n:$before in *[!0-9:]* | :* | *:) continue ;; esac
    [ "$n" -gt "$before" ] && printf 'cgroup: oom_kill %s\n' $((n - before))
  done
fi

# OOM kills outside the run's container belong to others: hosts are shared.
ours() { awk -v id="$id" '
  id != "" && /oom-kill:/ && match($0, /,pid=[0-9]+/) { pid = substr($0, RSTART + 5, RLENGTH - 5); if (index($0, id)) delete other[pid]; else other[pid] = 1 }
  id != "" && match($0, /(,pid=|[Kk]illed process )[0-9]+/) { pid = substr($0, RSTART, RLENGTH); gsub(/[^0-9]/, "", pid); if (pid in other) next }
  { print }'; }
relevant() { grep -aiE 'out of memory|oom-kill|killed process|NVRM: |nvidia-nvswitch|I/O error|(EXT4|XFS|BTRFS).*(error|shutdown)|segfault at|general protection|mlx[45]_.*(error|down|fail)|link is down|MCE|Hardware Error' | tail -n 40 | cut -c1-500; }
up=
{ read -r up _ </proc/uptime; } 2>/dev/null
up=${up%%.*}
case $up in '' | *[!0-9]*) ;; *)
  # The kernel's timestamps count from boot; one second of tolerance.
  output=$(T dmesg 2>/dev/null | awk -v from=$((up - now + began - 1)) -F'[][]' '/^\[ *[0-9]+\.[0-9]+\]/ && $2 + 0 >= from' 2>/dev/null | ours | relevant | sed 's/^\[[^]]*\] *//')
  if [ -z "$output" ] && command -v journalctl >/dev/null 2>&1; then
    output=$(T journalctl -k -q --no-pager -o cat --since "@$began" 2>/dev/null | ours | relevant)
  fi
  [ -z "$output" ] || printf '%s\n' "$output" | sed 's/^/kernel: /' ;;
esac

for p in "${F%/*}" /tmp /dev/shm; do
  # shellcheck disable=SC2046
  set -- $(T df -Pk "$p" 2>/dev/null | tail -n 1)
  [ $# -ge 6 ] || continue
  case $2:$4 in *[!0-9:]* | 0:*) continue ;; esac
  [ "$4" -lt 10240 ] && [ "$4" -lt $(($2 / 100)) ] && printf 'disk: %s is full: %s KiB of %s are free\n' "$6" "$4" "$2"
done | sort -u
exit 0
