#!/bin/sh
# On every node, in a step of its own: `sh <job directory>/files/stop-node`. Makes the node's `start` stop the ranks. SLURM's own signals would
# reach every process of the step, the ranks and the wrappers alike.
dir=${0%/*/*}
# shellcheck source=/dev/null
. "$dir/job.env" || exit 1
# Its task may not have made the directory yet.
in=$ORCH_ROOT/$ORCH_NAME/$SLURMD_NODENAME.in/$ORCH_RUN_ID
mkdir -p "$in" && : >"$in/stop"
