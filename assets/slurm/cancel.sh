# shellcheck shell=sh disable=SC2154
# Cancels the name's live job. Name and user are asked of SLURM too: the file with the id may be wrong.
find_job
if [ -n "$live" ]; then
  ask scancel scancel --name="$name" --user="$me" "$live"
  printf '@live %s\n' "$live"
fi
