#!/bin/sh
# On every node, in a step of its own after the ranks' step: `sh <job directory>/files/remove`. A container with a name outlives its job, unless
# the cluster's pyxis is set up with container_scope=job.
dir=${0%/*/*}
# shellcheck source=/dev/null
. "$dir/job.env" || exit 1
command -v enroot >/dev/null 2>&1 || exit 0
name=pyxis_orch-$ORCH_NAME-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}
if enroot list 2>/dev/null | grep -qxF "$name"; then enroot remove -f "$name"; fi
