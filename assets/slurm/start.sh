#!/bin/sh
# The launcher of one node, and the keeper that stops the node's ranks when one failed: `sh <host>.in/<run>/start [secrets]`. With `secrets`
# standard input has a line for each. TERM, or a file `stop` beside it, stops the ranks with launch.stop_grace. If they failed, it says so to the
# batch shell and waits for the `stop` that this one gives all nodes. Exits like the launcher; after a `stop` with 0, since SLURM ends the whole step
# for a task that fails, with ranks that still save on other nodes.
R=${0%/*} H=${0%/*/*}
F=${H%.in}.out/${R##*/}.
# Another node failed before this one has begun.
[ ! -e "$R/stop" ] || exit 0
file='' asked=''
if [ "${1:-}" = secrets ]; then
  file=/dev/shm/.orch-env.${R##*/}.$$
  (umask 077; cat >"$file") || { echo 'orchestrate: the secrets did not arrive' >&2; exit 125; }
fi
exec </dev/null
# In sessions of their own: a signal to this shell's group reaches them through the keeper alone.
if command -v setsid >/dev/null 2>&1; then apart=setsid; else apart=''; fi
rm -f "${F}node.rc" 2>/dev/null
$apart sh "$H/keeper" & keeper=$!
trap 'asked=1; kill -TERM "$keeper" 2>/dev/null' TERM INT
# shellcheck disable=SC2086
$apart sh "$R/node" $file & node=$!
stopped=''
while kill -0 "$node" 2>/dev/null; do
  # The keeper has its time to begin.
  sleep 1 & wait $!
  if [ -z "$stopped" ] && [ -e "$R/stop" ]; then stopped=1 && kill -TERM "$keeper" 2>/dev/null; fi
done
wait "$node"
code=$?
while kill -0 "$keeper" 2>/dev/null; do wait "$keeper"; done
[ -z "$file" ] || rm -f "$file"
{ read -r said _ <"${F}node.rc"; } 2>/dev/null
case ${said:-} in '' | *[!0-9]* | ????*) ;; *) code=$said ;; esac
if [ "$code" -ne 0 ] && [ ! -e "$R/stop" ]; then
  echo "orchestrate: the launcher ended with exit code $code: stopping all nodes"
  # SLURM itself ended this step: the batch shell may be unable to answer.
  i=0; [ -z "$asked" ] || i=50
  while [ ! -e "$R/stop" ] && [ "$i" -lt 60 ]; do i=$((i + 1)); sleep 1; done
fi
if [ -e "$R/stop" ]; then exit 0; fi
exit "$code"
