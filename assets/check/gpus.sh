# shellcheck shell=sh
# The GPUs: models, state, processes, and the kernel's Xid messages.
if has nvidia-smi; then
  fields=index,uuid,name,driver_version,compute_cap,memory.total,memory.used,persistence_mode,ecc.mode.current,ecc.errors.uncorrected.volatile.total,mig.mode.current
  # An unknown field fails the whole query: retry without it.
  while :; do
    text=$(within 20 nvidia-smi --query-gpu="$fields" --format=csv,noheader,nounits 2>&1); rc=$?
    [ "$rc" -eq 0 ] && break
    case $text in *'Field "'*'is not a valid field'*) ;; *) break ;; esac
    bad=${text#*Field \"} bad=${bad%%\"*} left=
    IFS=,; for f in $fields; do [ "$f" = "$bad" ] || left=$left${left:+,}$f; done; unset IFS
    if [ "$left" = "$fields" ] || [ -z "$left" ]; then break; fi
    fields=$left
  done
  if [ "$rc" -eq 0 ]; then
    emit gpu_fields "$fields"
    printf '%s\n' "$text" | head -n 64 | while IFS= read -r l; do emit gpu "$(printf %s "$l" | one)"; done
    within 20 nvidia-smi --query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure --format=csv,noheader 2>/dev/null |
      head -n 64 | while IFS= read -r l; do emit remap "$(printf %s "$l" | one)"; done
    within 20 nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory,process_name --format=csv,noheader,nounits 2>/dev/null |
      head -n 256 | while IFS= read -r l; do
      p=${l%%,*}
      case $p in '' | *[!0-9]*) continue ;; esac
      u=$(ps -o user= -p "$p" 2>/dev/null | head -n 1 | tr -d ' ')
      # shellcheck disable=SC2012
      [ -n "$u" ] || u=$(ls -ld "/proc/$p" 2>/dev/null | { read -r _ _ u _; printf %s "$u"; })
      c=$({ tr '\0' ' ' <"/proc/$p/cmdline"; } 2>/dev/null | one | cut -c1-200)
      b=$(grep -oE '[0-9a-f]{64}' "/proc/$p/cgroup" 2>/dev/null | head -n 1)
      o=-; if grep -qsF ORCH_RUN_ID= "/proc/$p/environ"; then o=ours; fi
      emit app "$o ${b:--} ${u:--} $(printf %s "$l" | one | cut -c1-300)|$c"
    done
  elif [ "$rc" -eq 124 ]; then emit gpu_error 'nvidia-smi gave no answer within 20 s'
  else emit gpu_error "$(printf '%s\n' "$text" | grep . | head -n 1 | one)"; fi
else emit gpu_error 'no nvidia-smi'; fi
# Many hosts restrict the kernel log.
if text=$(within 5 dmesg 2>/dev/null); then
  emit kernel_log dmesg; printf '%s\n' "$text" | grep -F 'NVRM: Xid' | tail -n 8 | while IFS= read -r l; do emit xid "$(printf %s "$l" | one)"; done
elif has journalctl && text=$(within 5 journalctl -k -q -b --no-pager -g 'NVRM: Xid' 2>/dev/null); then
  emit kernel_log journalctl; printf '%s\n' "$text" | tail -n 8 | while IFS= read -r l; do emit xid "$(printf %s "$l" | one)"; done
fi
if [ -e /proc/driver/nvidia-nvswitch/devices ] || [ -e /dev/nvidia-nvswitchctl ]; then
  emit nvswitch yes
  if has systemctl; then emit fabric_manager "$(output_of 5 systemctl is-active nvidia-fabricmanager)"
  elif has pgrep && pgrep -f nv-fabricmanager >/dev/null 2>&1; then emit fabric_manager active; fi
fi
emit did gpus
