# shellcheck shell=sh disable=SC2154
# Submits the script once. Set before: script, secrets (texts), run (the id of the run).
mkdir -p "$dir" || { printf '@failed cannot make the run directory\n'; exit 0; }
if ! take_lock; then printf '@failed another submission is under way\n'; exit 0; fi
find_job
if [ "$asked" -ne 0 ]; then exit 0; fi
if [ -n "$live" ]; then
  printf '@live %s\n' "$live"
  exit 0
fi
rm -f "$dir/slurm.sbatch"
printf '%s' "$script" >"$dir/slurm.sbatch" || { printf '@failed cannot write the script\n'; exit 0; }
ask test sbatch --test-only --chdir="$dir" "$dir/slurm.sbatch"
[ "$code" -eq 0 ] || exit 0
remove_secrets
if [ -n "$secrets" ]; then
  (set -C; printf '%s' "$secrets" >"$dir/slurm-secrets") || { printf '@failed cannot write the secrets\n'; exit 0; }
fi
# The id is noted before anything is printed: a connection that is lost now ends this shell at its next word.
answer=$(bounded 40 sbatch --parsable --chdir="$dir" "$dir/slurm.sbatch" "$run" 2>&1 </dev/null)
code=$?
id=$(printf '%s\n' "$answer" | sed -n 's/^\([1-9][0-9]*\)\(;.*\)\{0,1\}$/\1/p' | tail -n 1)
if [ "$code" -eq 0 ] && [ -n "$id" ]; then
  printf '%s %s\n' "$id" "$run" >"$dir/slurm-job.new" && mv -f "$dir/slurm-job.new" "$dir/slurm-job"
  printf '@submitted %s\n' "$id"
else
  # Refused: no job will read the secrets. Without an answer the job may be there, or come.
  said=$answer sbatch_code=$code kind=sbatch
  case $sbatch_code:$said in
    0:* | 124:* | 137:* | *'timed out'* | *'Unable to contact'* | *'Zero Bytes'* | *'onnection reset'*)
      kind=unclear
      find_job
      if [ -n "$live" ]; then
        printf '%s %s\n' "$live" "$run" >"$dir/slurm-job.new" && mv -f "$dir/slurm-job.new" "$dir/slurm-job"
        printf '@submitted %s\n' "$live"
        exit 0
      fi ;;
    *) remove_secrets ;;
  esac
  printf '@%s %s\n' "$kind" "$sbatch_code"
  printf '%s\n' "$said" | lines
fi
