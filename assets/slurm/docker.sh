# shellcheck shell=sh disable=SC2154,SC2034
# The node's container. It is a child of dockerd, not of this task: SLURM can neither count nor end it.
container=orch-$ORCH_NAME-$host-$SLURM_JOB_ID
owner=$(id -un)

# Containers of jobs that are gone: what scancel, a lost node or a requeue left here.
docker ps -a --filter label=orchestrate.slurm_job --filter "label=orchestrate.owner=$owner" --format '{{.ID}} {{.Label "orchestrate.slurm_job"}} {{.Label "orchestrate.host"}}' |
  while read -r id job at; do
    case $job in '' | *[!0-9]*) continue ;; esac
    if [ "$job" = "$SLURM_JOB_ID" ]; then
      [ "$at" = "$host" ] || continue
    else
      state=$(squeue -h -t all -j "$job" -o %T 2>&1) || case $state in *'Invalid job id'*) state=GONE ;; *) continue ;; esac
      case $state in
        GONE | PENDING | COMPLETED | CANCELLED | FAILED | TIMEOUT | NODE_FAIL | PREEMPTED | OUT_OF_MEMORY | BOOT_FAIL | DEADLINE | REVOKED) ;;
        *) continue ;;
      esac
    fi
    printf 'orchestrate: %s: removing the container of job %s, which has ended\n' "$host" "$job"
    docker rm -f "$id" >/dev/null </dev/null
  done

# The job's own GPUs, by their UUIDs where nvidia-smi is there: in a device cgroup the numbers begin at 0, for dockerd they do not.
job_gpus() {
  gpus=''
  if command -v nvidia-smi >/dev/null 2>&1 && [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    gpus=$(nvidia-smi --id="$CUDA_VISIBLE_DEVICES" --query-gpu=uuid --format=csv,noheader 2>/dev/null | paste -s -d , -)
  fi
  case $gpus in GPU-*) ;; *) gpus=${SLURM_STEP_GPUS:-} ;; esac
  count=$(printf '%s\n' "$gpus" | tr , '\n' | grep -c .)
  [ "$count" -eq "$ORCH_GPUS" ] || fail "SLURM gave $count GPUs to this job here, not $ORCH_GPUS; with all of them it would take those of other jobs"
}

# The job's memory limit binds in the container only beneath the job's cgroup, which docker takes with its cgroupfs driver.
cgroup_flag=''
if [ "$(docker info --format '{{.CgroupDriver}}' 2>/dev/null)" = cgroupfs ]; then
  cgroup_flag=$(sed -n 's#^[0-9]*:memory:\(/.*/job_[0-9]*\)/.*#\1#p; s#^0::\(/.*/job_[0-9]*\)/.*#\1#p' /proc/self/cgroup | sed -n "1s/^/--cgroup-parent=/p")
fi
