# shellcheck shell=sh disable=SC2154
# A task of prepare in the node's container: `sh <job directory>/files/step NUMBER`.
n=$1 first=0 last=0 register='' shared=''
# shellcheck source=/dev/null
. "$dir/files/task-$n.step" || fail "cannot read task $n"
if [ "$ORCH_NODE_RANK" -lt "$first" ] || [ "$ORCH_NODE_RANK" -gt "$last" ]; then exit 0; fi
after_names "task-$n.env" >"$ORCH_RUN_DIR/task-$n.env" || fail "cannot write $ORCH_RUN_DIR"

# The files of a task are written in its container, and read as those of ranks are.
# shellcheck source=/dev/null
. "$dir/files/read" || fail "cannot read $dir/files"
task=$ORCH_RUN_ID.task-$n

# keep_value: what the task registers becomes a variable of later tasks and of the ranks: one line of text, at most 4 KiB.
keep_value() {
  nl='
'
  value=$(cd -P "$out" && bytes "$task.value" "$(pwd -P)" 1 4097 && echo .) || fail "task $n: its output could not be kept"
  value=${value%.} value=${value%"$nl"}
  case $value in *"$nl"*) fail "task $n: it registers one line, and printed several" ;; esac
  [ "$(printf %s "$value" | wc -c)" -le 4096 ] || fail "task $n: what it registers is longer than 4 KiB"
  [ -z "$(printf %s "$value" | LC_ALL=C tr -dc '\001-\037\177')" ] || fail "task $n: what it registers has a control character"
  if command -v iconv >/dev/null 2>&1; then
    printf %s "$value" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 || fail "task $n: what it registers is not UTF-8"
  fi
  to=$dir/registered/${shared:-$host}
  { mkdir -p "$to" && printf "export %s='%s'\n" "$register" "$(printf %s "$value" | LC_ALL=C sed "s/'/'\\\\''/g")" >"$to/.$n"; } || fail "cannot write $to"
  mv -f "$to/.$n" "$to/$n" || fail "cannot write $to"
}

# shellcheck disable=SC2016
LAST_LINES=$OPENED'{ proper "$1" "$2" && tail -n 5; } <"$1"'
# ended CODE: prints what became of it.
ended() {
  word=$(cd -P "$out" && first_lines "$(pwd -P)" "$task.rc" | { read -r _ _ _ word _ && printf '%s' "$word"; })
  case $1:$word in
    0:creates) printf 'orchestrate: %s: task %s: skipped, what it creates exists\n' "$host" "$n" ;;
    0:unless) printf 'orchestrate: %s: task %s: skipped, unless succeeded\n' "$host" "$n" ;;
    0:missing) printf 'orchestrate: %s: task %s: done, but what it creates does not exist: it will run each time\n' "$host" "$n" ;;
    0:*) printf 'orchestrate: %s: task %s: done\n' "$host" "$n" ;;
    *:timeout) fail "task $n: not done within its timeout" ;;
    *)
      # The last lines may be on their way.
      i=0; while [ ! -e "$out/$task.end" ] && [ "$i" -lt 20 ]; do i=$((i + 1)); sleep 0.1 2>/dev/null || sleep 1; done
      (cd -P "$out" && within 20 sh -c "$LAST_LINES" sh "$task.log" "$(pwd -P)") 2>/dev/null | LC_ALL=C tr -d '\000-\010\013-\037\177' | cut -c 1-500
      fail "task $n: exit code $1" ;;
  esac
}
