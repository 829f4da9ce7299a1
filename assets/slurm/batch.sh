# shellcheck shell=bash disable=SC2154
say() { printf 'orchestrate: %s\n' "$*"; }

# note WORD...: appends a line to the job's status file: seconds since 1970, start, what happened.
note() { printf '%s %s %s\n' "$(date +%s)" "$start" "$*" >>"$dir/status"; }

fail() { say "$*" >&2; note "failed $*"; exit 1; }

# main [RUN]: `slurm submit` gives the first start the id of its run.
main() {
  start=${SLURM_RESTART_COUNT:-0} given_run=${1:-} holder='' step='' stopping=''
  dir=$root/$name/slurm-$SLURM_JOB_ID
  # Of the shell that submitted the job, perhaps a job itself: squeue filters by some, srun takes options from others.
  unset "${!SQUEUE_@}" "${!SRUN_@}" "${!SLURM_CPU_BIND@}" SLURM_TIME_FORMAT SLURM_STEP_GRES SLURM_TIMELIMIT SLURM_NO_KILL SLURM_EXACT SLURM_OVERLAP SLURM_IMMEDIATE
  # The login node wrote it there. A directory made here would be one that only this node sees.
  if [ -n "$given_run" ] && [ ! -f "$root/$name/slurm.sbatch" ]; then
    say "$(hostname) does not see $root/$name of the login node: set run_dir to a directory that all nodes share" >&2
    exit 1
  fi
  umask 077
  mkdir -p "$dir/files" "$dir/nodes" || { say "cannot write $dir" >&2; exit 1; }
  # The user of the image must be able to read the nodes' copies; the job's own directory is private.
  umask 022
  # Until there are ranks, a signal is noted and ends the job between two steps.
  end='' explained=''
  trap 'asked=1; stopping=1' USR1 TERM INT
  case $root in *\'*) fail "a quote in the run directory's path is not supported: $root" ;; esac
  say "job $SLURM_JOB_ID${start:+, start $start}: files in $dir"
  [ "${SLURM_JOB_NUM_NODES:-0}" -eq "$nodes" ] || fail "the job has ${SLURM_JOB_NUM_NODES:-no} nodes, but the ranks are counted for $nodes"
  [ -z "${SLURM_ARRAY_JOB_ID:-}" ] || fail 'one job is one run: submit it without --array'
  [ "$start" -le 10 ] || fail "requeued $start times: look at the first failures before the job is submitted again"
  read_secrets
  # sbatch's --cpus-per-task is not srun's: since SLURM 22.05 it is handed on like this.
  [ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
  # One task a node in every step; nothing of it reads standard input. A node that is done waits for the others (--wait=0: without limit).
  each_node=(--nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --export=ALL --mpi=none --wait=0)
  name_nodes
  write_files
  look_at_nodes
  find_end
  note "running $run"
  [ "${#tasks[@]}" -eq 0 ] || run_tasks
  run_ranks
}

# The first start reads the secrets and deletes the file: they stay in memory from here on.
read_secrets() {
  secrets=
  [ -n "$secrets_file" ] || return 0
  if [ ! -f "$secrets_file" ] || [ -L "$secrets_file" ] || [ ! -O "$secrets_file" ]; then
    [ "$start" -eq 0 ] || fail "requeued: the first start deleted the secrets; submit the job again"
    fail "no secrets: $secrets_file is missing, or belongs to someone else"
  fi
  secrets=$(cat "$secrets_file") || fail "cannot read $secrets_file"
  rm -f "$secrets_file" || fail "cannot delete $secrets_file"
}

# Rank 0 is on the first node of the expanded list: SLURM may order the nodes in another way than they were asked for.
name_nodes() {
  node_list=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || fail "scontrol cannot expand $SLURM_JOB_NODELIST"
  printf '%s\n' "$node_list" >"$dir/node-list"
  master=$(head -n 1 "$dir/node-list")
  # The address of the master, and one that the master has to reach.
  { node_address "$master"; node_address "$(sed -n 2p "$dir/node-list")"; } >"$dir/peers"
  # A run id of its own for each start, and a rendezvous that an earlier start of this job cannot join.
  run=$(date +%Y%m%d-%H%M%S)-$(printf '%04x' $((SLURM_JOB_ID % 65536)))
  case $start:$given_run in *[!0-9a-f:-]*) ;; 0:????????-??????-????) run=$given_run ;; esac
  {
    printf "ORCH_ROOT='%s'\nORCH_NAME='%s'\nORCH_RUN_ID='%s'\n" "$root" "$name" "$run"
    printf "ORCH_RUN_STAMP='%s'\nORCH_RENDEZVOUS_ID='%s'\n" "$(date +%Y%m%d%H%M%S)" "$SLURM_JOB_ID-$start"
    printf "ORCH_HOSTS='%s'\nORCH_MASTER_NAME='%s'\n" "$(paste -s -d , "$dir/node-list")" "$master"
    printf "ORCH_MASTER_PORT='%s'\nORCH_RANKS_PER_NODE='%s'\nORCH_GPUS='%s'\n" "$master_port" "$ranks_per_node" "$gpus_per_node"
  } >"$dir/job.env"
  # A start may get other nodes than the one before it.
  cp "$dir/node-list" "$dir/node-list.$run"
  sed "s/\$/ slots=$ranks_per_node/" "$dir/node-list" >"$dir/files/hostfile"
}

# node_address NODE: how SLURM reaches it. Neither `hostname` nor a name that a node resolves for itself: both may give 127.0.1.1.
node_address() {
  [ -n "$1" ] || return 0
  scontrol -o show node "$1" | sed -n 's/.* NodeAddr=\([^ ]*\) .*/\1/p'
}

# Each node finds its rank and the address that it uses towards the others.
look_at_nodes() {
  # shellcheck disable=SC2016
  see='[ -r "$0" ] || { echo "orchestrate: $SLURMD_NODENAME does not see $0: set run_dir to a directory that all nodes share" >&2; exit 1; }'
  srun "${each_node[@]}" --overlap --kill-on-bad-exit=1 /bin/sh -c "$see; exec /bin/sh \"\$0\"" "$dir/files/look" </dev/null || {
    [ -z "$stopping" ] || give_up 143 'stopped before the ranks'
    fail "a node could not be looked at: see above"
  }
  master_addr=$(sed -n "s/^ORCH_ADDRESS='\(.*\)'\$/\1/p" "$dir/nodes/$master")
  [ -n "$master_addr" ] || fail "$master did not find its address"
  printf "ORCH_MASTER_ADDR='%s'\n" "$master_addr" >>"$dir/job.env"
  say "run $run on $(paste -s -d ' ' "$dir/node-list"), master $master at $master_addr:$master_port"
}

# When the time limit ends the job: asked now, since the end of a cancelled job is the time of its cancelling.
find_end() {
  end=$(SLURM_TIME_FORMAT=%s squeue -h -j "$SLURM_JOB_ID" -o %e)
  case $end in *[!0-9]*) end='' ;; esac
}

# The ranks. If a node's launcher fails, or a signal comes, all nodes stop their ranks; if the step itself fails on a node, SLURM ends it on all.
run_ranks() {
  [ -z "$stopping" ] || give_up 143 'stopped before the ranks'
  step='' failed='' first=''
  # SLURM signals this shell alone (B: above); a second step signals every node, and the ranks have launch.stop_grace.
  # What came first, the signal or a failure, is why the job ends.
  trap 'asked=1; if [ -n "$failed" ]; then keep_first_failure; else stopping=1; explain_signal; fi; [ -z "$step" ] || stop_nodes' USR1 TERM INT
  trap 'asked=1; [ -n "$stopping$failed" ] || { failed=1; stop_nodes; }' USR2
  open_pipe
  watch_output <&8 8<&- 9>&- &
  watcher=$!
  # srun looks for its command on the node, not in the image: /bin/sh is in both.
  # shellcheck disable=SC2016
  ORCH_SECRETS=$secrets srun "${each_node[@]}" --kill-on-bad-exit=1 --label ${container[@]+"${container[@]}"} \
    /bin/sh -c 'exec /bin/sh "$0"' "$dir/files/task" </dev/null >&9 8<&- 9>&- &
  step=$!
  exec 8<&- 9>&-
  secrets=''
  # A signal that came before the step was known.
  [ -z "$stopping" ] || kill -TERM "$step"
  wait_for_step
  # What follows is finished in any case.
  trap : USR1 USR2 TERM INT
  while kill -0 "$watcher" 2>/dev/null; do wait "$watcher"; done
  [ -z "$stopping$failed" ] || read_launcher_codes
  if [ -n "$first" ]; then code=$first; elif [ -z "$stopping" ] && [ "$code" -ne 0 ]; then name_first_failure; fi
  remove_containers
  note "ended $code"
  say "ended with $code; logs: $root/$name/<node>.out/$run.*.log"
  exit "$code"
}

# A pipe: 9 is written, 8 is read. Its name is in a directory of this node, since not every shared file system has pipes.
open_pipe() {
  # Opened for both first: the other two would wait for each other.
  # shellcheck disable=SC2094
  if ! { at=$(mktemp -d) && mkfifo "$at/pipe" && exec 7<>"$at/pipe" 8<"$at/pipe" 9>"$at/pipe" && exec 7>&- && rm -r "$at"; }; then
    [ -z "$stopping" ] || give_up 143 'stopped before the ranks'
    give_up 1 'cannot make a pipe in a temporary directory'
  fi
}

# Copies what the nodes say to the job's log, and signals the batch shell when a launcher failed.
watch_output() {
  trap '' USR1 USR2 TERM INT
  while IFS= read -r line; do
    printf '%s\n' "$line"
    case $line in *': orchestrate: the launcher ended with exit code '*': stopping all nodes') kill -USR2 "$$" ;; esac
  done
}

# A signal ends `wait` and not the step. Sets code to the step's.
wait_for_step() {
  while :; do
    asked=''
    wait "$step"
    code=$?
    [ -n "$asked" ] || break
  done
}

# A node that was asked to stop ends its task with 0, so that the others have their time: the launchers' exit codes are in files. Sets code to the
# largest; at least 1 after a failure.
read_launcher_codes() {
  [ -z "$failed" ] || [ "$code" -ne 0 ] || code=1
  while read -r node; do
    file=$root/$name/$node.out/$run.node.rc
    if [ ! -f "$file" ] || [ -L "$file" ]; then continue; fi
    { read -r node_code _ <"$file"; } 2>/dev/null || continue
    case $node_code in '' | *[!0-9]* | ????*) continue ;; esac
    [ "$node_code" -le "$code" ] || code=$node_code
  done <"$dir/node-list"
}

# give_up CODE WHY: ends the job before its ranks; 143: after a signal.
give_up() {
  trap : USR1 TERM INT
  say "$2; logs: $root/$name/<node>.out/$run.*.log" >&2
  if [ "$1" -eq 143 ]; then explain_signal; else note "failed $2"; fi
  remove_containers
  note "ended $1"
  exit "$1"
}

# A step of its own: a signal to srun reaches every process of the ranks' step at once, and TERM makes srun kill them soon after.
stop_nodes() {
  srun "${each_node[@]}" --overlap --mem=0 --kill-on-bad-exit=0 /bin/sh "$dir/files/stop-node" >"$dir/stop.log" 2>&1 </dev/null 8<&- 9>&- &
}

# SLURM kills tasks, not the containers that dockerd runs for them: a step that was killed leaves them.
remove_containers() {
  if [ -n "$holder" ]; then
    : >"$dir/release"
    wait "$holder"
    holder=''
  fi
  [ -e "$dir/files/remove" ] || return 0
  srun "${each_node[@]}" --overlap --mem=0 --kill-on-bad-exit=0 --time=2 /bin/sh "$dir/files/remove" </dev/null >"$dir/remove.log" 2>&1 || say "a container may be left: see $dir/remove.log"
}

# A time limit and a preemption send the same signal: only the clock distinguishes them.
explain_signal() {
  [ -z "$explained" ] || return 0
  explained=1
  if [ -n "$end" ] && [ $((end - $(date +%s))) -le $((stop_before + 60)) ]; then why='the time limit is near'; else why='cancelled or preempted'; fi
  say "stopping the ranks: $why"
  note "stopping $why"
  : >"$dir/stopped.$run"
}

# A job that is cancelled while it stops after a failure may be killed before its end: the failure is noted now, once.
keep_first_failure() {
  [ -n "$first" ] || name_first_failure
}

# The rank whose status is bad and oldest failed first; the others followed it. A launcher's own status counts where no rank of it failed.
name_first_failure() {
  while read -r node; do
    for file in "$root/$name/$node.out/$run".rank-*.rc "$root/$name/$node.out/$run.node.rc"; do
      if [ ! -f "$file" ] || [ -L "$file" ]; then continue; fi
      { read -r rank_code when _ <"$file"; } 2>/dev/null || continue
      case $rank_code in killed) rank_code=137 ;; 0 | '' | *[!0-9]* | ????*) continue ;; esac
      case $when in '' | *[!0-9.]*) continue ;; esac
      file=${file##*/"$run".}
      case $file in
        node.rc) rank=launcher ;;
        *)
          # A rank names its files as it likes: a number for the rank, and one for its life.
          file=${file#rank-} rank=${file%%.*} life=${file#*.}
          case $rank:${life%.rc} in :* | *: | *:*:* | *[!0-9:]* | ??????????*:* | *:??????????*) continue ;; esac ;;
      esac
      printf '%s %s %s %s\n' "$when" "$rank_code" "$rank" "$node"
    done
  done <"$dir/node-list" | sort -n >"$dir/failures"
  { read -r _ rank_code rank node <"$dir/failures"; } 2>/dev/null || return 0
  code=$rank_code first=$rank_code
  if [ "$rank" = launcher ]; then
    say "the launcher on $node failed first, with exit code $rank_code: $root/$name/$node.out/$run.node.log"
    note "first launcher $node $rank_code"
    return 0
  fi
  say "rank $rank on $node failed first, with exit code $rank_code: $root/$name/$node.out/$run.rank-$rank.*.log"
  note "first $rank $node $rank_code"
}
