# shellcheck shell=sh disable=SC2154
# Cancels the name's live job. Name and user are asked of SLURM too: the file with the id may be wrong.
find_job
if [ -n "$live" ]; then
  answer=$(bounded 20 scancel --name="$name" --user="$me" "$live" 2>&1 </dev/null)
  code=$?
  # With these options scancel does not know a job that ends already: it was cancelled before, or has just ended.
  case $answer in *'Invalid job id'*) code=0 ;; esac
  printf '@scancel %s\n' "$code"
  [ -z "$answer" ] || printf '%s\n' "$answer" | lines
  printf '@live %s\n' "$live"
fi
