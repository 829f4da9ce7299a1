# shellcheck shell=sh
# A tilde in a pattern is literal.
# shellcheck disable=SC2088
# Lists what every name and owner has on this host: containers with our labels, and the current run of each name below run_dir.
# Read-only; runs after read.sh. Set before: run_dir; $docker is docker's command line.
: "${docker:=docker}" "${run_dir:=}"
case $run_dir in '~') run_dir=$HOME ;; '~/'*) run_dir=$HOME/${run_dir#\~/} ;; esac
# line KEY TEXT: one line, truncated.
line() { printf '%s %s\n' "$1" "$(printf %.2000s "$2" | tr '\n\r' '  ')"; }
line run_dir "$run_dir"
if command -v docker >/dev/null 2>&1; then
  f='{{.State.Status}}|{{.State.StartedAt}}|{{index .Config.Labels "orchestrate.name"}}|{{index .Config.Labels "orchestrate.host"}}|{{index .Config.Labels "orchestrate.owner"}}|{{index .Config.Labels "orchestrate.run_dir"}}'
  if v=$(within 15 sh -c "exec $docker ps -a -q --no-trunc --filter label=orchestrate.name" 2>&1 </dev/null); then
    for i in $(printf '%s\n' "$v" | head -n 256); do
      case $i in *[!0-9a-f]*) continue ;; esac
      v=$(within 10 sh -c "exec $docker \"\$@\"" sh inspect --type container --format "$f" "$i" 2>/dev/null </dev/null) || { line docker_error "docker did not inspect container $(printf %.12s "$i")"; continue; }
      line container "$v"
    done
  else line docker_error "${v:-docker did not answer}"; fi
fi
# born PID: its start time, which distinguishes it from a later process with the same number; empty if it is gone or a zombie.
born() {
  [ -r "/proc/$1/stat" ] || { kill -0 "$1" 2>/dev/null && ! [ -d /proc/self ] && echo alive; return 0; }
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  # shellcheck disable=SC2086 # its words
  set -- ${stat##*) }; [ "$1" = Z ] || printf '%s\n' "${20}"
}
boot=''; { read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
n=0
for d in "$run_dir"/*/*.private; do
  if [ ! -d "$d" ] || [ -L "$d" ] || [ ! -O "$d" ]; then continue; fi
  n=$((n + 1))
  [ "$n" -le 256 ] || break
  r=''
  { read -r r <"$d/current"; } 2>/dev/null
  case $r in '' | *[!0-9A-Za-z-]* | ?????????????????????????????????????????*) continue ;; esac
  plain "$d/$r.json" || continue
  a=ended
  if { read -r p s at <"$d/keeper.pid"; } 2>/dev/null && number "$p" && [ "${at:-${boot:--}}" = "${boot:--}" ] && [ ! -e "${d%.private}.out/$r.node.rc" ]; then
    case $(born "$p") in "$s" | alive) a=running ;; esac
  fi
  h=${d##*/}
  printf 'run %s %s %s ' "$a" "${h%.private}" "$r"
  head -c 1048576 "$d/$r.json" | tr '\n\r' '  '
  echo
done
echo looked
