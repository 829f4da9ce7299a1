#!/bin/sh
# One launcher: its own log, pid and exit status. Started as `sh <run dir>/node [secrets file]`, detached, inside the container or on the bare
# host. argv, environment and working directory come from files, byte for byte. Outlives a TERM to its group, so that the status is written.
R=${0%/*}
# shellcheck source=assets/lib.sh
. "$R/lib"
mask=$(umask); umask 022
exec </dev/null >>"$R/node.log" 2>&1
record node
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
trap : TERM INT HUP
"$@"
rc=$?
umask 022
ended node "$rc"
exit "$rc"
