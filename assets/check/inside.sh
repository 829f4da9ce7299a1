# shellcheck shell=sh
# What is visible only where the ranks will run: versions, GPUs, limits, shared memory, writable paths.
# Set before: python, gpus (whether any are given), writes (paths, quoted for eval), same (commands, quoted for eval).
: "${python:=python3}" "${gpus:=}" "${writes:=}" "${same:=}"
if command -v "$python" >/dev/null 2>&1; then
  within 60 "$python" -c '
import sys, re, os
print("version python %d.%d.%d" % sys.version_info[:3])
try:
    import importlib.metadata as m, importlib.util as u
except ImportError:
    sys.exit(0)
names = {}
for d in m.distributions():
    try: names[d.metadata["Name"].lower().replace("_", "-")] = d.version
    except Exception: pass
def report(name, version):
    if version: print("version", name, str(version).split()[0])
torch = names.get("torch")
try:
    spec = u.find_spec("torch")
    text = open(os.path.join(os.path.dirname(spec.origin), "version.py")).read() if spec and spec.origin else ""
    found = dict(re.findall(r"^(__version__|cuda)\b[^=\n]*= *.([0-9][^\x27\x22]*)", text, re.M))
    torch = found.get("__version__", torch)
    report("cuda", found.get("cuda"))
except Exception: pass
report("torch", torch)
for name in ("accelerate", "deepspeed", "transformers", "jax", "jaxlib", "numpy"): report(name, names.get(name))
for name in names:
    if name.startswith("nvidia-nccl"): report("nccl", names[name])
' 2>/dev/null
else emit no_python "$python"; fi
if [ -n "$gpus" ]; then
  if has nvidia-smi; then
    text=$(within 20 nvidia-smi -L 2>&1)
    emit inside_gpus "$(printf '%s\n' "$text" | grep -c '^GPU ') $(printf '%s\n' "$text" | grep -v '^GPU \|^ *MIG ' | head -n 1 | one)"
  else
    n=0; for f in /dev/nvidia[0-9]*; do [ -e "$f" ] && n=$((n + 1)); done
    emit inside_devices "$n"
  fi
fi
# shellcheck disable=SC3045
emit inside_nofile "$(ulimit -n 2>/dev/null)"
# shellcheck disable=SC3045
l=$(ulimit -l 2>/dev/null) && emit inside_memlock "$l"
# shellcheck disable=SC2046
set -- $(df -Pk /dev/shm 2>/dev/null | tail -n 1); emit inside_shm "${2:-} ${4:-}"
emit inside_user "$(id -u 2>/dev/null):$(id -g 2>/dev/null)"
eval "set -- $writes"
at=0
for f in "$@"; do
  if [ -d "$f" ]; then
    p=$f/.orchestrate-check-$$-$at
    if l=$({ : >"$p"; } 2>&1) && rm -f "$p"; then emit write "$at yes"; else emit write "$at no $(printf %s "$l" | sed 's/.*: //' | one)"; fi
  elif [ ! -e "$f" ]; then emit write "$at none"
  elif [ -w "$f" ]; then emit write "$at yes"; else emit write "$at no not writable"; fi
  at=$((at + 1))
done
eval "set -- $same"
at=0
for f in "$@"; do
  l=$(within 30 sh -c "$f" 2>&1 </dev/null); rc=$?
  emit same "$at $rc $(printf '%s\n' "$l" | sum) $(printf %s "$l" | one | cut -c1-300)"
  at=$((at + 1))
done
emit did inside
