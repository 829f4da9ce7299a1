#!/bin/sh
# In the container: `sh <host>.in/<run>/enter NUMBER [secrets]` runs a task of prepare. With `secrets` standard input has a line for each.
R=${0%/*} file=''
if [ "${2:-}" = secrets ]; then
  file=/dev/shm/.orch-env.${R##*/}.$$
  (umask 077; cat >"$file") || { echo 'orchestrate: the secrets did not arrive' >&2; exit 125; }
fi
exec /bin/sh "$R/run-task" "$1" ${file:+"$file"} </dev/null
