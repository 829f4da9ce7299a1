#!/bin/sh
# On every node, in steps of their own before the tasks and after the ranks: `sh <job directory>/files/remove`. A container with a name outlives its
# job, unless the cluster's pyxis is set up with container_scope=job: removes this job's, and those of jobs that are gone.
dir=${0%/*/*}
# shellcheck source=/dev/null
. "$dir/job.env" || exit 1
command -v enroot >/dev/null 2>&1 || exit 0
enroot list 2>/dev/null | while read -r name; do
  case $name in pyxis_orch-*-*-*) ;; *) continue ;; esac
  job=${name%-*} job=${job##*-}
  case $job in '' | *[!0-9]*) continue ;; esac
  if [ "$job" != "$SLURM_JOB_ID" ]; then
    state=$(squeue -h -t all -j "$job" -o %T 2>&1 </dev/null) || case $state in *'Invalid job id'*) state=GONE ;; *) continue ;; esac
    case $state in
      GONE | PENDING | COMPLETED | CANCELLED | FAILED | TIMEOUT | NODE_FAIL | PREEMPTED | OUT_OF_MEMORY | BOOT_FAIL | DEADLINE | REVOKED) ;;
      *) continue ;;
    esac
  fi
  printf 'orchestrate: %s: removing the container %s\n' "$SLURMD_NODENAME" "$name"
  enroot remove -f "$name" </dev/null || printf 'orchestrate: %s: cannot remove the container %s\n' "$SLURMD_NODENAME" "$name" >&2
done
