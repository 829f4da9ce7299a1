# shellcheck shell=sh disable=SC2154
# Samples a node of a job through a step beside the ranks, until standard input ends. Set before: job, node, script (what the node runs).
# The step shares what the job has (--mem=0: its memory, too, where --overlap shares only the CPUs), waits for nothing, and ends by itself after half an hour: then the next one begins.
# Standard error of the node is dropped there: this shell collects only srun's own messages.
# srun runs in its own session: a signal that ends this shell goes to its group, and srun has to forward the end of its input to the node.
if command -v setsid >/dev/null 2>&1; then apart=setsid; else apart=''; fi
exec 3>&1
begun=$(date +%s)
# shellcheck disable=SC2086
said=$($apart srun --quiet --jobid="$job" --overlap --immediate=10 --nodes=1 --ntasks=1 --nodelist="$node" --time=30 --mem=0 --mpi=none --chdir=/ --unbuffered \
  /bin/sh -c "exec 2>/dev/null
$script" 2>&1 >&3 3>&-)
code=$?
# A step that was refused, not one whose time was over.
if [ "$code" -ne 0 ] && [ $(($(date +%s) - begun)) -lt 60 ]; then
  cause=$(printf '%s\n' "$said" | sed -n 's/^srun: error: //p; s/^srun: fatal: //p; s/^srun: \(unrecognized option.*\)/\1/p' | head -n 1)
  [ -n "$cause" ] || cause=$(printf '%s\n' "$said" | grep '[^[:space:]]' | head -n 1)
  printf 'E srun --overlap: %s\n' "$(printf '%s\n' "${cause:-exit status $code}" | cut -c 1-300)"
fi
