# shellcheck shell=sh disable=SC2154
# What a submission needs of the cluster; changes nothing. Set before: wanted (partitions; empty: the default), image (what the nodes run,
# a file or a directory; empty: none), script (what sbatch is asked about; empty: nothing).
for program in sbatch srun scontrol scancel sinfo; do
  command -v "$program" >/dev/null 2>&1 || printf '@absent %s\n' "$program"
done
ask version scontrol --version
# -a: also hidden partitions, which sinfo 22.05 refuses beside -p; -e: nodes of different sizes on lines of their own, not the smallest with a `+`.
if [ -n "$wanted" ]; then set -- -p "$wanted"; else set -- -a; fi
ask partitions sinfo "$@" -e -h -o '%P|%a|%l|%D|%c|%G'
above=$dir
while [ ! -e "$above" ] && [ -n "$above" ]; do above=${above%/*}; done
[ -n "$above" ] || above=/
if [ -d "$above" ] && [ -w "$above" ] && [ -x "$above" ]; then printf '@writable %s\n' "$above"; else printf '@unwritable %s\n' "$above"; fi
printf '@filesystem %s\n' "$(bounded 10 stat -f -c %T "$above" 2>/dev/null | head -n 1)"
if [ -n "$image" ]; then
  if [ -e "$image" ] && [ -r "$image" ]; then printf '@image readable\n'; else printf '@image unreadable\n'; fi
fi
if [ -n "$script" ]; then
  find_job
  [ -z "$live" ] || printf '@live %s\n' "$live"
  answer=$(printf '%s' "$script" | bounded 20 sbatch --test-only --chdir="$above" 2>&1)
  printf '@test %s\n' "$?"
  printf '%s\n' "$answer" | lines
fi
