#!/bin/sh
# The one task of a node: `sh <job directory>/files/task`. Puts the scripts where this node's ranks find them, then starts them.
dir=${0%/*/*}
host=${SLURMD_NODENAME:-}
fail() { printf 'orchestrate: %s: %s\n' "$host" "$*" >&2; exit 1; }
[ "${SLURM_LOCALID:-0}" = 0 ] || fail 'more than one task on this node: its launcher would run twice'
# shellcheck source=/dev/null
{ . "$dir/job.env" && . "$dir/nodes/$host"; } || fail "cannot read $dir"
in=$ORCH_ROOT/$ORCH_NAME/$host.in out=$ORCH_ROOT/$ORCH_NAME/$host.out
# shellcheck disable=SC2153
ORCH_RUN_DIR=$in/$ORCH_RUN_ID
umask 022
{ mkdir -p "$ORCH_RUN_DIR" "$out" && chmod 777 "$out" && cp "$dir"/files/* "$ORCH_RUN_DIR/"; } || fail "cannot write $ORCH_RUN_DIR"
# after_names FILE: the file, after the names that the job and the node have.
after_names() {
  cat "$dir/job.env" "$dir/nodes/$host"
  printf "ORCH_RUN_DIR='%s'\nORCH_DEVICES='%s'\n" "$ORCH_RUN_DIR" "$(printf %s "${CUDA_VISIBLE_DEVICES:-}" | tr , ' ')"
  cat "$dir/files/$1"
}
after_names env >"$ORCH_RUN_DIR/env" || fail "cannot write $ORCH_RUN_DIR/env"
rm -f "$in/keep"
{ cp "$dir/files/keeper" "$in/keeper" && printf '%s\n' "$ORCH_RUN_ID" >"$in/current"; } || fail "cannot write $in"
# A signal is for what runs below: this shell waits for its end.
trap : TERM INT

# with_secrets COMMAND...: the secrets are its standard input, and in no environment or argument.
with_secrets() {
  given=${ORCH_SECRETS:-}
  unset ORCH_SECRETS
  if [ -n "$given" ]; then printf '%s\n' "$given" | "$@" secrets; else "$@" </dev/null; fi
}
