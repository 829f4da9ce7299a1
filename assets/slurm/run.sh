# shellcheck shell=sh disable=SC2154
# run_container COMMAND...: `docker run`; a signal stops the container, and it never outlives this shell.
run_container() {
  trap 'docker stop "$container" >/dev/null 2>&1' TERM INT
  trap 'docker rm -f "$container" >/dev/null 2>&1' EXIT
  # A command in the background loses its standard input unless it is named.
  exec 3<&0
  "$@" <&3 3<&- & client=$!
  code=1
  while kill -0 "$client" 2>/dev/null; do wait "$client"; code=$?; done
  exit "$code"
}
