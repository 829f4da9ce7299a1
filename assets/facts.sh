# shellcheck shell=sh
# A tilde in a pattern is literal; word splitting is intended.
# shellcheck disable=SC2088,SC2015,SC2086
# Gathers facts about a host and what it holds under this name. Read-only; runs after read.sh. Prints `key value` lines; a value has no line break.
# Set before: name host run_dir run(image, mounts, ports …): see plan/facts.rs. D runs docker; $docker is its command line.
: "${docker:=docker}" "${peers:=}" "${name:=}" "${smoke:=}" "${host:=}" "${run_dir:=}" "${mounts:=}" "${ports:=}" "${image:=}" "${container:=}" "${want_docker:=}" "${want_idle:=}" "${want_port:=}" "${want_left:=}"
emit() { printf '%s %s\n' "$1" "$2"; }
nl='
' cr=$(printf '\r')
# emit_text KEY TEXT: prints a program's output on one line, truncated.
emit_text() {
  case $2 in
    *"$nl"* | *"$cr"*) ;;
    *) if [ ${#2} -le 2000 ]; then emit "$1" "$2"; return 0; fi ;;
  esac
  emit "$1" "$(printf %s "$2" | tr '\n\r' '  ' | cut -c1-2000)"
}
emit now "$(date +%s.%N)"
up='' boot=''; { read -r up _ </proc/uptime; read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
emit uptime "${up%%.*} $boot"
emit system "$(uname -s) $(uname -m)"
emit user "$(id -un 2>/dev/null)"
uid=$(id -u)
emit uid "$uid"
emit gid "$(id -g)"
emit home "$HOME"
emit connection "$SSH_CONNECTION"
emit boot "$boot"
case $run_dir in '~') run_dir=$HOME ;; '~/'*) run_dir=$HOME/${run_dir#\~/} ;; esac
emit run_dir "$run_dir"
emit host "$host"
d=$run_dir; while [ ! -d "$d" ] && [ "$d" != / ] && [ -n "$d" ]; do d=${d%/*}; done; d=${d:-/}
emit nearest "$d"
[ -w "$d" ] && emit writable yes || emit writable no
# shellcheck disable=SC2046
set -- $(df -Pk "$d" 2>/dev/null | tail -n 1); emit disk "${4:-0} ${2:-0}"
# What logind does at logout. /run/user/<uid>/docker.pid is a rootless dockerd's.
unit() { u=other; { while IFS= read -r l; do case $l in */user@*) u=manager ;; */session-*.scope*) u=session ;; esac; done <"$1"; } 2>/dev/null; }
engine=; { read -r engine <"/run/user/$uid/docker.pid"; } 2>/dev/null
unit /proc/self/cgroup
[ "$u" = session ] && emit logind session=yes
if [ "$u" = session ] || [ -n "$engine" ]; then
  { within 5 loginctl show-session -p KillUserProcesses -p KillOnlyUsers -p KillExcludeUsers; within 5 loginctl show-user "$uid" -p Linger; } 2>/dev/null |
    head -n 8 | while IFS= read -r l; do emit_text logind "$l"; done
  if number "$engine" && [ -r "/proc/$engine/cgroup" ]; then unit "/proc/$engine/cgroup"; emit logind "engine=$u"; fi
fi
if command -v ip >/dev/null 2>&1; then ip -o addr 2>/dev/null | while read -r _ i _ a _; do emit address "${a%%/*} ${i%%@*}"; done
elif command -v ifconfig >/dev/null 2>&1; then ifconfig 2>/dev/null | { i=; while IFS= read -r l; do
  case $l in [!\ \	]*) i=${l%%[: ]*} ;; esac
  set -- $l
  case $1 in inet | inet6) a=${2#addr:}; emit address "${a%%[%/]*} $i" ;; esac
done; }; fi
[ -n "$peers" ] && for p in $peers; do printf 'route get %s\n' "$p"; done | ip -o -force -batch - 2>/dev/null | while IFS= read -r l; do emit route "$l"; done
if command -v nvidia-smi >/dev/null 2>&1; then
  within 20 nvidia-smi -L 2>&1 | head -n 64 | while IFS= read -r l; do emit_text gpu "$l"; done
  if [ -n "$want_idle" ]; then within 20 nvidia-smi --query-compute-apps=gpu_uuid --format=csv,noheader 2>/dev/null | sort -u | head -n 64 | while IFS= read -r l; do emit_text gpu_busy "$l"; done; fi
else emit gpus 'no nvidia-smi'; fi
if [ -n "$want_docker" ]; then
  # A hanging daemon may answer one query and not the next. After a timeout it is not queried again: logs need no docker.
  hangs=''
  hung() { hangs=1; emit docker_error "docker did not answer within $1 s"; }
  ask() { # WORDS...: sets v to what docker says
    [ -z "$hangs" ] || return 1
    v=$(within 10 sh -c "exec $docker \"\$@\"" sh "$@" 2>/dev/null </dev/null) && return 0
    [ $? -ne 124 ] || hung 10
    return 1
  }
  v=$(within 15 sh -c "exec $docker version --format '{{.Server.Version}}'" 2>&1 </dev/null)
  case $? in 0) emit_text docker "$v" ;; 124) hung 15 ;; *) emit_text docker_error "$v"; hangs=1 ;; esac
  f='{{.Id}} {{.State.Status}} {{.State.Pid}} {{.State.ExitCode}} {{.State.OOMKilled}} {{.Image}} {{.Name}} {{index .Config.Labels "orchestrate.name"}} {{index .Config.Labels "orchestrate.host"}} {{index .Config.Labels "orchestrate.container_hash"}} {{index .Config.Labels "orchestrate.check"}} {{index .Config.Labels "orchestrate.owner"}}|{{index .Config.Labels "orchestrate.run_dir"}}'
  ids=''
  # Containers of this name under any host name: the host may have been renamed.
  ask ps -a -q --no-trunc --filter "label=orchestrate.name=$name" && ids=$(printf '%s\n' "$v" | head -n 256)
  for i in $ids; do case $i in *[!0-9a-f]*) ;; *) ask inspect --type container --format "$f" "$i" && emit_text container "$v" ;; esac; done
  if [ -n "$container" ]; then
    if ask inspect --type container --format '{{index .Config.Labels "orchestrate.name"}}/{{index .Config.Labels "orchestrate.host"}}|{{index .Config.Labels "orchestrate.run_dir"}}' "$container"; then
      case ${v#*\|} in '' | '<no value>' | "$run_dir") v=${v%%\|*} ;; esac
      emit_text taken "$v"
    fi
  fi
  if [ -n "$image" ]; then ask image inspect --format '{{.Id}}' "$image" && emit_text image "$v"; fi
fi
# shellcheck disable=SC2086
eval "set -- $mounts"
for m in "$@"; do case $m in '~') m=$HOME ;; '~/'*) m=$HOME/${m#\~/} ;; esac; [ -e "$m" ] && emit mount "yes $m" || emit mount "no $m"; done
for p in $ports; do
  h=$(printf '%04X' "$p")
  if [ -r /proc/net/tcp ]; then
    l=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -E "^ *[0-9]+: [0-9A-F]+:$h [0-9A-F]+:0000 0A" | head -n 1)
  else l=$(netstat -an 2>/dev/null | grep -E "[.:]$p .*LISTEN" | head -n 1); fi
  [ -n "$l" ] && emit busy "$p"
done
if [ -n "$want_port" ]; then
  # Below the kernel's ephemeral range; the start is random, so that two runs rarely collide.
  p=$((20000 + ($$ * 7919 + $(date +%s)) % 10000)) n=0
  while [ "$n" -lt 200 ]; do
    h=$(printf '%04X' "$p")
    if [ -r /proc/net/tcp ]; then l=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -E "^ *[0-9]+: [0-9A-F]+:$h " | head -n 1)
    else l=$(netstat -an 2>/dev/null | grep -E "[.:]$p .*LISTEN" | head -n 1); fi
    [ -n "$l" ] || { emit free_port "$p"; break; }
    p=$((20000 + (p - 19999) % 10000)) n=$((n + 1))
  done
fi
for m in /dev/shm "/run/user/$uid"; do for l in "$m/.orch-login.$container".??????; do
  # shellcheck disable=SC3067
  [ -O "$l" ] && emit login "$l"
done; done
for l in "/dev/shm/.orch-env.$container".????????-??????-????; do if [ -e "$l" ] || [ -L "$l" ]; then emit secret "$l"; fi; done
# The directories of this name and host: see plan/host_context.rs. A directory of another user is not read.
mine() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }
base=$run_dir/$name/$host all=$run_dir/$name
if [ -e "$all" ] || [ -L "$all" ]; then
  # shellcheck disable=SC2012
  mine "$all" || { emit_text foreign "$(ls -ld "$all" 2>/dev/null | { read -r _ _ o _; printf %s "$o"; }) $all"; base=/dev/null/none all=/dev/null/none; }
fi
P=$base.private IN=$base.in OUT=$base.out
for d in "$P" "$IN" "$OUT"; do if [ -d "$d" ] || [ -L "$d" ]; then emit host_dir "$d"; break; fi; done
if [ -n "$want_left" ]; then
  # Leftovers of this name under other host names (renamed host, shared home): the record of each run once.
  n=0 runs=' '
  for d in "$all"/*.private; do
    b=${d##*/} b=${b%.private}
    case $b in "$host" | '' | *[!0-9A-Za-z._-]*) continue ;; esac
    mine "$d" || continue
    n=$((n + 1)); [ "$n" -le 256 ] || break
    emit other_dir "$b"
    r=; { read -r r <"$d/current"; } 2>/dev/null
    case $r in '' | *[!0-9a-f-]* | ?????????????????????*) continue ;; esac
    case $runs in *" $r "* | ' '*' '*' '*' '*' '*) continue ;; esac
    plain "$d/$r.json" || continue
    runs="$runs$r "
    head -c 16777216 "$d/$r.json" | while IFS= read -r l; do emit other_record "$r $l"; done
  done
  # Processes whose environment names a run directory of this name; the directory may be gone.
  n=0
  [ -d /proc/self ] && for e in $(within 20 grep -lsF "ORCH_RUN_DIR=$run_dir/$name/" /proc/[0-9]*/environ 2>/dev/null); do
    [ -O "$e" ] || continue
    l=$nl$(tr '\0' '\n' <"$e" 2>/dev/null)$nl
    case $l in *"${nl}ORCH_RUN_ID="*"$nl"*) ;; *) continue ;; esac
    r=${l#*"${nl}ORCH_RUN_DIR=$run_dir/$name/"} r=${r%%"$nl"*} b=${r%.in/*} r=${r##*.in/}
    case $b/$r in */*/* | *[!0-9A-Za-z._/-]*) continue ;; esac
    n=$((n + 1)); [ "$n" -le 256 ] || break
    p=${e#/proc/}; emit process "${p%/environ} $r $b"
  done
fi
[ ! -d "$run_dir/$smoke/$host.private" ] || emit smoke yes
if l=$(readlink "$P/lock" 2>/dev/null); then
  emit_text lock "$l"
  b=0; { read -r b <"$P/lock.beat"; } 2>/dev/null; emit lock_beat "$b"
fi
[ -e "$P/keep" ] && emit keep yes
born() { number "$1" || return 0
  [ -r "/proc/$1/stat" ] || { kill -0 "$1" 2>/dev/null && ! [ -d /proc/self ] && echo alive; return 0; }
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  set -- ${stat##*) }; [ "$1" = Z ] || printf '%s\n' "${20}"; }
# run_id TEXT: whether it is a valid run id.
run_id() { case $1 in '' | *[!0-9A-Za-z-]* | -* | ?????????????????????????????????????????*) return 1 ;; esac; }
bad() { emit_text bad_current "$(cleaned "$1")"; }
if { read -r p s at <"$P/keeper.pid"; } 2>/dev/null && [ "${at:-${boot:--}}" = "${boot:--}" ]; then b=$(born "$p"); if [ -n "$b" ] && { [ "$b" = "$s" ] || [ "$b" = alive ]; }; then emit keeper "$p"; fi; fi
# A bare host's keeper whose directory is gone is found by its command line.
if [ -n "$want_left" ] && [ -z "$want_docker" ] && [ ! -e "$P/keeper.pid" ] && [ -d /proc/self ]; then
  for e in $(within 20 grep -lsF "$run_dir/$name/$host.in/keeper" /proc/[0-9]*/cmdline 2>/dev/null); do
    [ -O "$e" ] && [ "$(tr '\0' ' ' <"$e" 2>/dev/null)" = "/bin/sh $run_dir/$name/$host.in/keeper " ] || continue
    p=${e#/proc/}; emit keeper "${p%/cmdline}"; break
  done
fi
c='' prefix='' dir=''
{ read -r c <"$P/current"; } 2>/dev/null
# A run without a record is found by its input directory.
for r in "$P"/*.json "$IN"/*/settings; do
  case $r in */settings) r=${r%/settings} r=${r##*/}; [ ! -L "$IN/$r" ] && [ ! -e "$P/$r.json" ] ;; *) r=${r##*/} r=${r%.json}; [ -f "$P/$r.json" ] ;; esac && run_id "$r" && emit run "$r"
done
# An invalid file must not block the cleanup.
if [ -e "$P/current" ] || [ -L "$P/current" ]; then run_id "$c" || bad "$c"; fi
if run_id "$c"; then prefix=$c.; dir=$(cd -P -- "$OUT" 2>/dev/null && pwd -P)
else c=''
fi
emit current "$c"
[ -z "$c" ] || [ ! -e "$P/$c.stopped" ] || emit stopped yes
# The followers of the run: a stream's file is touched every 5 s while its laptop answers.
n=0
[ -z "$c" ] || for f in "$P/following.$c".*; do
  if ! number "${f##*.}" || [ ! -d "/proc/${f##*.}" ] || [ ! -f "$f" ] || [ -L "$f" ]; then continue; fi
  n=$((n + 1)); [ "$n" -le 16 ] || break
  at=$(date -r "$f" +%s 2>/dev/null) now=$(date +%s)
  number "$at" || at=$now
  l=$(head -c 200 "$f" 2>/dev/null | head -n 1)
  [ -z "$l" ] || emit_text follower "$((now > at ? now - at : 0)) $l"
done
# beside NAME: whether it is a task on the host beside the container, for which the container must not speak.
beside() { [ -e "$P/host.in/$c/$1" ]; }
if [ -n "$c" ] && [ -n "$dir" ] && cd -- "$dir"; then
  files='' count=0
  for f in "$prefix"node.pid "$prefix"node.rc "$prefix"rank-*.pid "$prefix"rank-*.rc "$prefix"task-*.pid "$prefix"task-*.rc; do
    b=${f#"$prefix"} b=${b%.*}
    if wrapper "$b" && plain "$f" && ! beside "$b" && [ "$count" -lt 4096 ]; then files="$files $f" count=$((count + 1)); fi
  done
  lines=
  [ -z "$files" ] || lines=$(first_lines "$dir" $files)
  ended() { case $nl$lines in *"$nl$prefix$1.rc "*) l=${lines#*"$prefix$1.rc "}; l=${l%%"$nl"*} ;; *) return 1 ;; esac; }
  # After a reboot the processes have ended, even if their pids are in use again.
  lost=''
  { read -r at <"$P/$c.boot"; } 2>/dev/null && [ -n "$at" ] && [ -n "$boot" ] && [ "$at" != "$boot" ] && lost='killed 0'
  node=none
  if ended node; then node="ended $l"; fi
  while read -r f p s _ at _; do
    b=${f#"$prefix"}
    case $b in *.pid) b=${b%.pid} ;; *) continue ;; esac
    wrapper "$b" || continue
    case $b in task-*)
      if ended "$b"; then emit task "$b $l"; continue; fi
      n=$(born "$p"); if [ -n "$n" ] && [ "$n" = "$s" ] && [ "$at" = "${boot:--}" ]; then n=alive; else n=unseen; fi
      emit task "$b ${lost:-running $n}"
      continue ;;
    esac
    if [ "$b" != node ]; then if ended "$b"; then emit rank "$b $l"; else emit rank "$b ${lost:-running}"; fi; continue; fi
    if [ "$node" = none ] && [ -n "$lost" ]; then node="ended $lost"
    elif [ "$node" = none ] && number "$p"; then
      n=$(born "$p"); if [ -n "$n" ] && [ "$n" = "$s" ] && [ "$at" = "${boot:--}" ]; then node="pid $p alive"; else node="pid $p unseen"; fi
    fi
  done <<FOUND
$lines
FOUND
  emit node "$node"
  # Tasks that have sent their files.
  if [ -f "$P/$c.files" ] && [ ! -L "$P/$c.files" ]; then
    head -c 65536 "$P/$c.files" | while read -r n; do if wrapper "task-$n"; then emit task "task-$n 0 0"; fi; done
  fi
  files=
  for f in "$prefix"node.log "$prefix"rank-*.log "$prefix"task-*.log; do b=${f#"$prefix"} b=${b%.log}; if wrapper "$b" && plain "$f" && ! beside "$b"; then files="$files $f"; fi; done
  # shellcheck disable=SC2012
  [ -z "$files" ] || (unset TIME_STYLE; LC_ALL=C ls -lnd -- $files 2>/dev/null) | head -n 4096 | while read -r mode _ _ _ size _ _ _ f _; do
    b=${f#"$prefix"} b=${b%.log}
    case $mode in -*) wrapper "$b" && number "$size" && emit log "$b $size" ;; esac
  done
elif [ -n "$c" ]; then emit node none
fi
# The run's record.
if [ -n "$c" ] && [ -f "$P/$c.json" ] && [ ! -L "$P/$c.json" ]; then
  head -c 16777216 "$P/$c.json" | while IFS= read -r l; do emit record "$l"; done
fi
# Tasks on the host beside a container, whose files no rank can reach.
if [ -n "$c" ] && [ -d "$P/host.in" ] && [ ! -L "$P/host.in" ]; then
  emit host_tasks yes
  for f in "$P/host.out/$c".task-*.pid; do
    t=${f##*/"$c".} t=${t%.pid}
    if ! wrapper "$t" || ! plain "$f"; then continue; fi
    p='' s='' at='' l='killed 0'
    { read -r p s _ at <"$f"; } 2>/dev/null
    n=$(born "$p"); if [ -n "$n" ] && [ "$n" = "$s" ] && [ "$at" = "${boot:--}" ]; then l='running alive'; fi
    # After the process: one that ends just now has its status.
    if plain "${f%.pid}.rc"; then { read -r l <"${f%.pid}.rc"; } 2>/dev/null; fi
    emit host_task "$t $(printf %s "$l" | cut -c1-200)"
  done
  for f in "$P/host.out/$c".task-*.log; do
    t=${f##*/"$c".} t=${t%.log}
    if wrapper "$t" && plain "$f"; then emit log "$t $(wc -c <"$f" | tr -d ' ')"; fi
  done
fi
emit now_end "$(date +%s.%N)"
