# shellcheck shell=sh disable=SC2154
# Removes what the name's jobs left in the run directory, unless one lives. What cannot be removed is listed, and what a node may still use that
# SLURM has lost: ranks and containers there outlive the job.
# Set before: fetched (the runs whose logs were fetched, as `JOB:RUN JOB:RUN`): what another run wrote is kept.
if [ -d "$dir" ] && ! take_lock; then printf '@failed a submission is under way\n'; exit 0; fi
find_job
if [ "$asked" -ne 0 ]; then exit 0; fi
if [ -n "$live" ]; then
  printf '@live %s\n' "$live"
  exit 0
fi
remove_secrets
plain_word() { case $1 in '' | .* | -* | *[!A-Za-z0-9._-]*) return 1 ;; esac; }
nodes_of() {
  cat "$1/node-list" "$1"/node-list.* 2>/dev/null | sort -u | head -n 4096 | while read -r node; do if plain_word "$node"; then printf '%s\n' "$node"; fi; done
}
# lost_nodes FILES: those of a job's nodes that do not answer SLURM; none where its step has seen every rank end. Status 1: SLURM does not say.
lost_nodes() {
  case $(tail -n 1 "$1/status" 2>/dev/null) in *' ended 0') return 0 ;; esac
  list=$(nodes_of "$1" | paste -s -d , -)
  [ -n "$list" ] || return 0
  states=$(bounded 20 sinfo -a -h -N -n "$list" -o '%N %T' 2>/dev/null </dev/null) || return 1
  printf '%s\n' "$states" | sort -u | while read -r node state; do
    case $state in down | unknown | *'*') if plain_word "$node"; then printf ' %s' "$node"; fi ;; esac
  done
}
for files in "$dir"/slurm-[1-9]*; do
  if [ ! -d "$files" ] || [ -L "$files" ]; then continue; fi
  id=${files##*/slurm-}
  case $id in *[!0-9]*) continue ;; esac
  runs=$(sed -n 's/^[0-9]* [0-9]* running \([0-9a-f-]*\)$/\1/p' "$files/status" 2>/dev/null | head -n 20)
  unfetched=''
  for run in $runs; do case " $fetched " in *" $id:$run "*) ;; *) unfetched="$unfetched $run" ;; esac; done
  if [ -n "$unfetched" ]; then
    printf '@left %s: not fetched: the logs of%s\n' "$files" "$unfetched"
    continue
  fi
  if ! lost=$(lost_nodes "$files"); then
    printf '@left %s: sinfo does not say whether its nodes answer\n' "$files"
    continue
  fi
  if [ -n "$lost" ]; then
    printf '@left %s: nodes that do not answer, where the job may still run:%s; run this again when they are back, or remove it if they are gone for good\n' \
      "$files" "$(printf %s "$lost" | cut -c 1-200)"
    continue
  fi
  while read -r node; do
    for run in $runs; do
      [ ! -d "$dir/$node.in/$run" ] || [ -L "$dir/$node.in" ] || rm -rf "$dir/$node.in/$run"
      [ ! -d "$dir/$node.out" ] || [ -L "$dir/$node.out" ] || rm -rf "$dir/$node.out/$run".*
    done
    # A directory that is not empty holds another run's files.
    if [ -d "$dir/$node.out" ] && [ ! -L "$dir/$node.out" ]; then rmdir "$dir/$node.out" 2>/dev/null; fi
    if [ ! -e "$dir/$node.out" ] && [ -d "$dir/$node.in" ] && [ ! -L "$dir/$node.in" ] && [ ! -e "$dir/$node.private" ]; then
      rm -f "$dir/$node.in/keeper" "$dir/$node.in/current"
      rmdir "$dir/$node.in" 2>/dev/null
    fi
    for run in $runs; do
      for left in "$dir/$node.in/$run" "$dir/$node.out/$run".*; do [ ! -e "$left" ] || printf '@left %s\n' "$left"; done
    done
  done <<NODES
$(nodes_of "$files")
NODES
  rm -rf "$files" "$dir/$name-$id.out"
  [ ! -e "$files" ] || printf '@left %s\n' "$files"
done
rm -f "$dir/slurm-job" "$dir/slurm.sbatch"
[ ! -e "$dir/slurm-secrets" ] || printf '@left %s\n' "$dir/slurm-secrets"
# Given back by hand: the next owner's lock must not go with this shell.
if [ -n "$has_lock" ]; then rm -f "$lock"; trap - EXIT; fi
rmdir "$dir" 2>/dev/null
printf '@clean 0\n'
