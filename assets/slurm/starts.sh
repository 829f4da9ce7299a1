# shellcheck shell=sh disable=SC2154
# Every start of every job of the name whose files are here: its run, its job and its nodes.
for files in "$dir"/slurm-[1-9]*; do
  id=${files##*/slurm-}
  case $id in *[!0-9]*) continue ;; esac
  if [ ! -f "$files/status" ] || [ -L "$files/status" ] || [ -L "$files" ]; then continue; fi
  for run in $(bounded 10 sed -n 's/^[0-9]* [0-9]* running \([0-9a-f-]*\)$/\1/p' "$files/status" | head -n 20); do
    printf '@start %s %s\n' "$run" "$id"
    list=$files/node-list.$run
    [ -f "$list" ] || list=$files/node-list
    if [ -f "$list" ] && [ ! -L "$list" ]; then bounded 10 head -n 4096 "$list" | sed 's/^/ /'; fi
  done
done
