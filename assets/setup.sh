#!/usr/bin/env bash
# Runs launch.setup in this shell, then executes the command: `bash <run dir>/with-setup COMMAND...`.
# The setup gets no arguments: `activate` and the like would read them as their own.
orch_words=("$@")
orch_dir=${0%/*}
set --
# shellcheck source=/dev/null
. "$orch_dir/setup"
exec "${orch_words[@]}"
