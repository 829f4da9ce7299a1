#!/usr/bin/env bash
# Runs launch.setup in this shell, and then the given words in its place: `bash <run dir>/with-setup WORDS...`.
# The lines see no arguments: `activate` and the like would take them for their own.
orch_words=("$@")
orch_dir=${0%/*}
set --
# shellcheck source=/dev/null
. "$orch_dir/setup"
exec "${orch_words[@]}"
