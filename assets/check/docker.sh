# shellcheck shell=sh
# Docker as a daemon: how it keeps containers apart, where it stores, whether it knows NVIDIA's runtime; what carries our labels.
# Set before: D (the words that run docker).
# shellcheck disable=SC2016
: "${D:=docker}"
ask() { within 20 sh -c "$D \"\$@\"" sh "$@"; }
text=$(ask info --format '{{.CgroupDriver}}|{{.CgroupVersion}}|{{.DefaultRuntime}}|{{.DockerRootDir}}|{{range $k, $v := .Runtimes}}{{$k}} {{end}}|{{range .SecurityOptions}}{{.}} {{end}}' 2>&1) ||
  text=$(ask info --format '{{.CgroupDriver}}||{{.DefaultRuntime}}|{{.DockerRootDir}}|{{range $k, $v := .Runtimes}}{{$k}} {{end}}' 2>&1)
case $text in *'|'*'|'*'|'*'|'*) emit docker_info "$(printf '%s\n' "$text" | grep -F '|' | tail -n 1 | one)" ;; *) emit docker_error "$(printf '%s\n' "$text" | tail -n 1 | one)" ;; esac
r=${text#*|*|*|} r=${r%%|*}
if [ -n "$r" ] && [ "$r" != "$text" ]; then
  # shellcheck disable=SC2046
  emit docker_disk "$r $(set -- $(df -Pk "$r" 2>/dev/null | tail -n 1); echo "${2:--} ${4:--}") $(set -- $(df -Pi "$r" 2>/dev/null | tail -n 1); echo "${2:--} ${4:--}")"
fi
for f in nvidia-container-runtime-hook nvidia-container-cli nvidia-ctk nvidia-container-toolkit; do if has $f; then emit toolkit $f; fi; done
for f in /dev/char/195:*; do [ -e "$f" ] && { emit char_links yes; break; }; done
ask ps -a --no-trunc --filter label=orchestrate.name --format '{{.Label "orchestrate.name"}} {{.Label "orchestrate.host"}} {{.ID}} {{.Names}} {{.Label "orchestrate.owner"}} {{.Status}}' 2>/dev/null |
  head -n 64 | while IFS= read -r l; do emit labelled "$(printf %s "$l" | one)"; done
emit did docker
