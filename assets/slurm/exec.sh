# shellcheck shell=sh disable=SC2154
# The node's container is there: a step of its own holds it.
# Set before: stop_grace (seconds).
container=orch-$ORCH_NAME-$host-$SLURM_JOB_ID

# in_container COMMAND...: a signal does not reach what `docker exec` runs: a file asks the ranks to stop.
in_container() {
  : >"$ORCH_RUN_DIR/begun"
  asked='' left=$((stop_grace + 30))
  trap 'asked=1; : >"$ORCH_RUN_DIR/stop"' TERM INT
  # A command in the background loses its standard input unless it is named.
  exec 3<&0
  docker exec -i "$container" "$@" <&3 3<&- & client=$!
  code=1
  while kill -0 "$client" 2>/dev/null; do wait "$client"; code=$?; done
  # SLURM's signals end the client too: it has not waited for the ranks.
  while { [ -n "$asked" ] || [ "$code" -gt 128 ]; } && [ "$left" -gt 0 ] && [ ! -e "$out/$ORCH_RUN_ID.node.rc" ] &&
    [ "$(docker inspect -f '{{.State.Running}}' "$container" 2>/dev/null </dev/null)" = true ]; do
    left=$((left - 1))
    sleep 1 & wait $!
  done
  : >"$ORCH_RUN_DIR/ended"
  exit "$code"
}
