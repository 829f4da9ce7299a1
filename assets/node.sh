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
  { ORCH_SECRETS=$(cat "$1") && export ORCH_SECRETS && rm -f "$1"; } || fail 'the secrets did not arrive' 125
fi
# The variables are set in the shell that becomes the launcher: there they can have any name, here they would be this script's own.
# What tasks of prepare registered; the inventory's variables win. `entrypoint` is there if the ranks run through the image's ENTRYPOINT.
# shellcheck disable=SC2016
LAUNCH='eval "$ORCH_SECRETS"; unset ORCH_SECRETS
if [ -r "$0/registered" ]; then . "$0/registered"; fi
. "$0/env"
if [ -n "$ORCH_WORKDIR" ] && ! cd -- "$ORCH_WORKDIR"; then printf "orchestrate: no working directory %s\n" "$ORCH_WORKDIR"; exit 125; fi
. "$0/argv"
if [ -r "$0/entrypoint" ]; then . "$0/entrypoint"; fi
exec "$@"'
trap : TERM INT HUP
# Where the launcher ended by a signal, this shell writes that: the log has only what the launcher wrote.
# In parentheses, since dash would redirect its own stderr too until the command has ended.
exec 3>&2 2>/dev/null
(exec /bin/sh -c "$LAUNCH" "$R" 2>&3 3>&-)
rc=$?
exec 2>&3 3>&-
umask 022
# Another signal would end the shell that computes the status, and the status would be empty.
trap '' TERM INT HUP
ended node "$rc"
exit "$rc"
