# shellcheck shell=sh
# A tilde in a pattern is meant as it stands; the words are ours and may be split.
# shellcheck disable=SC2088,SC2015,SC2086
# What a host is and what of this name is on it: one read-only script. Prints `key value` lines; a value has no line break.
# Set before: name host run_dir run(image, mounts, ports …): see plan/facts.rs. D runs docker.
: "${peers:=}" "${name:=}" "${smoke:=}" "${host:=}" "${run_dir:=}" "${mounts:=}" "${ports:=}" "${image:=}" "${container:=}" "${want_docker:=}" "${want_idle:=}" "${want_port:=}"
one() { tr '\n\r' '  ' | cut -c1-2000; }
say() { printf '%s %s\n' "$1" "$2"; }
within() { s=$1; shift; if command -v timeout >/dev/null 2>&1; then timeout "$s" "$@"; else "$@"; fi; }
say now "$(date +%s.%N)"
say system "$(uname -s) $(uname -m)"
say user "$(id -un 2>/dev/null)"
say uid "$(id -u)"
say gid "$(id -g)"
say home "$HOME"
say connection "$SSH_CONNECTION"
boot=; { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null; say boot "$boot"
case $run_dir in '~') run_dir=$HOME ;; '~/'*) run_dir=$HOME/${run_dir#\~/} ;; esac
say run_dir "$run_dir"
d=$run_dir; while [ ! -d "$d" ] && [ "$d" != / ] && [ -n "$d" ]; do d=${d%/*}; done; d=${d:-/}
say nearest "$d"
[ -w "$d" ] && say writable yes || say writable no
# shellcheck disable=SC2046
set -- $(df -Pk "$d" 2>/dev/null | tail -n 1); say disk "${4:-0} ${2:-0}"
command -v setsid >/dev/null 2>&1 && say setsid yes
if command -v ip >/dev/null 2>&1; then ip -o addr 2>/dev/null | while read -r _ i _ a _; do say address "${a%%/*} ${i%%@*}"; done
elif command -v ifconfig >/dev/null 2>&1; then ifconfig 2>/dev/null | { i=; while IFS= read -r l; do
  case $l in [!\ \	]*) i=${l%%[: ]*} ;; esac
  set -- $l
  case $1 in inet | inet6) a=${2#addr:}; say address "${a%%[%/]*} $i" ;; esac
done; }; fi
[ -n "$peers" ] && for p in $peers; do printf 'route get %s\n' "$p"; done | ip -o -force -batch - 2>/dev/null | while IFS= read -r l; do say route "$l"; done
if command -v nvidia-smi >/dev/null 2>&1; then
  within 20 nvidia-smi -L 2>&1 | head -n 64 | while IFS= read -r l; do say gpu "$(printf %s "$l" | one)"; done
  if [ -n "$want_idle" ]; then within 20 nvidia-smi --query-compute-apps=gpu_uuid --format=csv,noheader 2>/dev/null | sort -u | head -n 64 | while IFS= read -r l; do say gpu_busy "$(printf %s "$l" | one)"; done; fi
else say gpus 'no nvidia-smi'; fi
if [ -n "$want_docker" ]; then
  if v=$(within 20 sh -c "$D version --format '{{.Server.Version}}'" 2>&1); then say docker "$(printf %s "$v" | one)"; else say docker_error "$(printf %s "$v" | one)"; fi
  f='{{.Id}} {{.State.Status}} {{.State.Pid}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.Image}} {{.Name}} {{index .Config.Labels "orchestrate.name"}} {{index .Config.Labels "orchestrate.host"}} {{index .Config.Labels "orchestrate.container_hash"}}'
  ids=$(eval "$D ps -a -q --no-trunc --filter label=orchestrate.name=$name --filter label=orchestrate.host=$host" 2>/dev/null)
  for i in $ids; do eval "$D inspect --type container --format '$f' $i" 2>/dev/null | while IFS= read -r l; do say container "$l"; done; done
  if [ -n "$container" ]; then
    l=$(eval "$D inspect --type container --format '{{index .Config.Labels \"orchestrate.name\"}}/{{index .Config.Labels \"orchestrate.host\"}}' $container" 2>/dev/null) && say taken "$l"
  fi
  if [ -n "$image" ]; then i=$(eval "$D image inspect --format '{{.Id}}' \"\$image\"" 2>/dev/null) && say image "$(printf %s "$i" | one)"; fi
fi
# shellcheck disable=SC2086
eval "set -- $mounts"
for m in "$@"; do case $m in '~') m=$HOME ;; '~/'*) m=$HOME/${m#\~/} ;; esac; [ -e "$m" ] && say mount "yes $m" || say mount "no $m"; done
for p in $ports; do
  h=$(printf '%04X' "$p")
  if [ -r /proc/net/tcp ]; then
    l=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -E "^ *[0-9]+: [0-9A-F]+:$h [0-9A-F]+:0000 0A" | head -n 1)
  else l=$(netstat -an 2>/dev/null | grep -E "[.:]$p .*LISTEN" | head -n 1); fi
  [ -n "$l" ] && say busy "$p"
done
if [ -n "$want_port" ]; then
  # Below the range from which the kernel gives ports to those who ask for any; begun somewhere, so that two runs seldom meet.
  p=$((20000 + ($$ * 7919 + $(date +%s)) % 10000)) n=0
  while [ "$n" -lt 200 ]; do
    h=$(printf '%04X' "$p")
    if [ -r /proc/net/tcp ]; then l=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -E "^ *[0-9]+: [0-9A-F]+:$h " | head -n 1)
    else l=$(netstat -an 2>/dev/null | grep -E "[.:]$p .*LISTEN" | head -n 1); fi
    [ -n "$l" ] || { say free_port "$p"; break; }
    p=$((20000 + (p - 19999) % 10000)) n=$((n + 1))
  done
fi
for m in /dev/shm "/run/user/$(id -u)"; do for l in "$m/.orch-login.$container".??????; do
  # shellcheck disable=SC3067
  [ -O "$l" ] && say login "$l"
done; done
H=$run_dir/$name/$host
[ -d "$H" ] && say host_dir "$H"
[ -d "$run_dir/$smoke/$host" ] && say smoke yes
if l=$(readlink "$H/lock" 2>/dev/null); then
  say lock "$l"
  b=0; { read -r b <"$H/lock.beat"; } 2>/dev/null; say lock_beat "$b"
fi
[ -e "$H/keep" ] && say keep yes
born() { [ -r "/proc/$1/stat" ] || { kill -0 "$1" 2>/dev/null && ! [ -d /proc/self ] && echo alive; return 0; }
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0; 
  # shellcheck disable=SC2086
  set -- ${stat##*) }; [ "$1" = Z ] || printf '%s\n' "${20}"; }
if { read -r p s <"$H/keeper.pid"; } 2>/dev/null; then b=$(born "$p"); if [ -n "$b" ] && { [ "$b" = "$s" ] || [ "$b" = alive ]; }; then say keeper "$p"; fi; fi
c=; { read -r c <"$H/current"; } 2>/dev/null; say current "$c"
for r in "$H"/*/; do
  [ -e "$r/run.json" ] || [ -e "$r/settings" ] || continue
  r=${r%/}; say run "${r##*/}"
done
r=$H/$c
if [ -n "$c" ] && [ -d "$r" ]; then
  if [ -e "$r/node.rc" ]; then say node "ended $(one <"$r/node.rc")"
  elif { read -r p s _ at <"$r/node.pid"; } 2>/dev/null; then
    b=$(born "$p"); if [ -n "$b" ] && [ "$b" = "$s" ] && [ "$at" = "${boot:--}" ]; then say node "pid $p alive"; else say node "pid $p unseen"; fi
  else say node none; fi
  for f in "$r"/rank-*.pid; do
    [ -e "$f" ] || continue
    b=${f##*/}; b=${b%.pid}
    if [ -e "$r/$b.rc" ]; then say rank "$b $(one <"$r/$b.rc")"; else say rank "$b running"; fi
  done
  # shellcheck disable=SC2012
  LC_ALL=C ls -ln "$r" 2>/dev/null | while read -r _ _ _ _ size _ _ _ f; do case $f in node.log | rank-*.log) say log "${f%.log} $size" ;; esac; done
  [ -r "$r/run.json" ] && while IFS= read -r l; do say run_json "$l"; done <"$r/run.json"
fi
say now_end "$(date +%s.%N)"
