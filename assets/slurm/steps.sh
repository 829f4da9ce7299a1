# shellcheck shell=bash disable=SC2154
# The tasks of prepare that run in the container: a step each. A task ends on all nodes before the next one begins.
run_tasks() {
  rm -rf "$dir/registered" "$dir/held" "$dir/release"
  mkdir -p "$dir/registered/@all" "$dir/held" || fail "cannot write $dir"
  trap 'asked=1; stopping=1; explain_signal; [ -z "$step" ] || kill -TERM "$step"' USR1 TERM INT
  # pyxis: first what jobs that are gone have left on these nodes. Docker's `hold` does that itself.
  [ -e "$dir/files/hold" ] || remove_containers
  hold_containers
  for task in "${tasks[@]}"; do
    [ -z "$stopping" ] || give_up 143 "stopped before task $task"
    say "task $task"
    note "task $task"
    # shellcheck disable=SC2016
    ORCH_SECRETS=$secrets srun "${each_node[@]}" --overlap --kill-on-bad-exit=1 --label ${container[@]+"${container[@]}"} \
      /bin/sh -c 'exec /bin/sh "$0" "$1"' "$dir/files/step" "${task%%:*}" </dev/null &
    step=$!
    # A signal that came before the step was known.
    [ -z "$stopping" ] || kill -TERM "$step"
    wait_for_step
    step=''
    [ -z "$stopping" ] || give_up 143 "stopped during task $task"
    [ "$code" -eq 0 ] || give_up 1 "task $task failed"
  done
  note "tasks done"
}

# Docker: one container a node for the whole job. A step of its own starts it, and removes it at the end or when the job is cancelled.
hold_containers() {
  [ -e "$dir/files/hold" ] || return 0
  srun "${each_node[@]}" --overlap --kill-on-bad-exit=1 --label /bin/sh "$dir/files/hold" </dev/null &
  holder=$!
  until [ "$(find "$dir/held" -type f | wc -l)" -eq "$nodes" ]; do
    [ -z "$stopping" ] || give_up 143 'stopped before the tasks'
    kill -0 "$holder" 2>/dev/null || give_up 1 'a container could not be started: see above'
    sleep 1
  done
}
