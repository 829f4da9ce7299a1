#!/bin/sh
# One launcher: its own log, pid and exit status. Started as `sh <host>.in/<run>/node [secrets file]`, detached, inside the container or on the bare
# host. argv, environment and working directory come from files, byte for byte. Survives TERM to its group, so that it can write the status.
R=${0%/*} F=${0%/*/*}
F=${F%.in}.out/${R##*/}.
# shellcheck source=assets/lib.sh
. "$R/lib"
mask=$(umask); umask 022
# shellcheck source=assets/pipe.sh
. "$R/pipe"
exec </dev/null
log_through node
record node
# The OOM kills so far: a kept container may have some from earlier runs.
grep -hs '^oom_kill ' /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control >"${F}oom"
umask "$mask"
fail() { printf 'orchestrate: %s\n' "$1"; umask 022; ended node "$2"; exit "$2"; }
if [ -n "$1" ]; then
  # shellcheck source=/dev/null
  { . "$1" && rm -f "$1"; } || fail 'the secrets did not arrive' 125
fi
# shellcheck source=/dev/null
. "$R/env"
if [ -n "$ORCH_WORKDIR" ]; then cd -- "$ORCH_WORKDIR" || fail "no working directory $ORCH_WORKDIR" 125; fi
# shellcheck source=/dev/null
. "$R/argv"
# The image's ENTRYPOINT, if the ranks run through it.
# shellcheck source=/dev/null
if [ -r "$R/entrypoint" ]; then . "$R/entrypoint"; fi
trap : TERM INT HUP
"$@"
rc=$?
umask 022
# Another signal would end the shell that computes the status, and the status would be empty.
trap '' TERM INT HUP
ended node "$rc"
exit "$rc"
