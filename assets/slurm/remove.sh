#!/bin/sh
# On every node, in a step of its own after the ranks' step: `sh <job directory>/files/remove`. Removes this job's container, if one is left.
dir=${0%/*/*}
# shellcheck source=/dev/null
. "$dir/job.env" || exit 1
left=$(docker ps -aq --filter "label=orchestrate.slurm_job=$SLURM_JOB_ID" --filter "label=orchestrate.host=$SLURMD_NODENAME") || exit 1
[ -n "$left" ] || exit 0
printf 'orchestrate: %s: removing the container that the ranks left\n' "$SLURMD_NODENAME"
# shellcheck disable=SC2086
docker rm -f $left
