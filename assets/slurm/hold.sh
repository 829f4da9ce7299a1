# shellcheck shell=sh disable=SC2154
# hold_container COMMAND...: `docker run -d`; the container stays until the job releases it or is cancelled, and outlives this shell by two minutes
# at most.
hold_container() {
  asked='' waiter='' beats=0
  trap 'docker rm -f "$container" >/dev/null 2>&1' EXIT
  trap 'asked=1; : >"$ORCH_RUN_DIR/stop"' TERM INT
  "$@" </dev/null >/dev/null || fail 'the container did not start'
  : >"$dir/held/$host" || fail "cannot write $dir/held"
  while [ ! -e "$dir/release" ]; do
    # Ranks that run get their grace first: the step that started them notes their end.
    if [ -n "$asked" ]; then
      if [ ! -e "$ORCH_RUN_DIR/begun" ] || [ -e "$ORCH_RUN_DIR/ended" ]; then exit 143; fi
    fi
    # SLURM's signals end the client that waits, and not the container.
    if [ -z "$waiter" ] || ! kill -0 "$waiter" 2>/dev/null; then
      [ "$(docker inspect -f '{{.State.Running}}' "$container" 2>/dev/null </dev/null)" = true ] || fail 'the container has ended'
      docker wait "$container" >/dev/null 2>&1 </dev/null & waiter=$!
    fi
    # In place: a full disk has room for it.
    if [ $((beats % 5)) -eq 0 ]; then { printf '%010d\n' "$beats" 1<>"$ORCH_RUN_DIR/beat"; } 2>/dev/null; fi
    beats=$((beats + 1))
    sleep 1 & wait $!
  done
}
