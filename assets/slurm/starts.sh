# shellcheck shell=sh disable=SC2154
# Every start of a job: its run and its nodes. Set before: job.
files=$dir/slurm-$job
if [ -f "$files/status" ] && [ ! -L "$files/status" ]; then
  for run in $(bounded 10 sed -n 's/^[0-9]* [0-9]* running \([0-9a-f-]*\)$/\1/p' "$files/status" | head -n 20); do
    printf '@start %s\n' "$run"
    list=$files/node-list.$run
    [ -f "$list" ] || list=$files/node-list
    if [ -f "$list" ] && [ ! -L "$list" ]; then bounded 10 head -n 4096 "$list" | sed 's/^/ /'; fi
  done
fi
