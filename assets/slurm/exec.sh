# shellcheck shell=sh disable=SC2154
# The node's container is there: a step of its own holds it.
container=orch-$ORCH_NAME-$host-$SLURM_JOB_ID

# in_container COMMAND...: a signal does not reach what `docker exec` runs: a file asks the ranks to stop.
in_container() {
  : >"$ORCH_RUN_DIR/begun"
  trap ': >"$ORCH_RUN_DIR/stop"' TERM INT
  # A command in the background loses its standard input unless it is named.
  exec 3<&0
  docker exec -i "$container" "$@" <&3 3<&- & client=$!
  code=1
  while kill -0 "$client" 2>/dev/null; do wait "$client"; code=$?; done
  # A client that was ended itself has not waited for the ranks.
  while [ ! -e "$out/$ORCH_RUN_ID.node.rc" ] && [ "$(docker inspect -f '{{.State.Running}}' "$container" 2>/dev/null </dev/null)" = true ]; do
    sleep 1 & wait $!
  done
  : >"$ORCH_RUN_DIR/ended"
  exit "$code"
}
