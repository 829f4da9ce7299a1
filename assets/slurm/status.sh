# shellcheck shell=sh disable=SC2154
# What is known of the name's last job: by squeue, else by sacct, else by scontrol; and by the job's own files.
find_job
if [ "$asked" -eq 0 ] && [ -z "$live" ]; then remove_secrets; fi
[ -n "$job" ] || exit 0
if [ -z "$state" ] || ended_state "$state"; then
  ask sacct sacct -n -P -X -j "$job" -o JobID,State,ExitCode,NodeList
  case $answer in "$job|"*) ;; *) [ "$asked" -ne 0 ] || ask scontrol scontrol -o show job "$job" ;; esac
fi
# Its place: by priority, among those that wait for the same partitions.
case $partition in
  '' | -* | *[!A-Za-z0-9_.,-]*) ;;
  *)
    if [ "$state" = PENDING ]; then
      waiting=$(bounded 20 squeue -h -t PENDING -p "$partition" --sort=-p,i -o %i 2>/dev/null </dev/null | head -n 20000)
      printf '@place %s %s\n' "$(printf '%s\n' "$waiting" | grep -nx "$job" | sed -n '1s/:.*//p')" "$(printf '%s\n' "$waiting" | grep -c .)"
    fi ;;
esac
files=$dir/slurm-$job
if [ -f "$dir/slurm-job" ] && [ ! -L "$dir/slurm-job" ]; then
  { read -r id run _ <"$dir/slurm-job"; } 2>/dev/null
  [ "${id:-}" != "$job" ] || printf '@given %s\n' "${run:-}"
fi
if [ -f "$files/status" ] && [ ! -L "$files/status" ]; then printf '@notes 0\n'; bounded 10 tail -n 60 "$files/status" | lines; fi
# A step that used too much memory is named by srun in the job's log; the job is FAILED.
log=$dir/$name-$job.out
if [ -f "$log" ] && [ ! -L "$log" ] &&
  bounded 10 tail -n 200 "$log" | grep -Eq '^srun: error: [^ ]+: tasks? [0-9,-]+: Out Of Memory$'; then printf '@out-of-memory 0\n'; fi
if [ -f "$files/node-list" ] && [ ! -L "$files/node-list" ]; then
  printf '@nodes 0\n'
  bounded 10 head -n 4096 "$files/node-list" | sed 's/^/ /'
else
  case $nodes in
    '' | -* | *[!]A-Za-z0-9_.,[-]* | '(null)') ;;
    *) ask nodes scontrol show hostnames "$nodes" ;;
  esac
fi
if [ -f "$files/job.env" ] && [ ! -L "$files/job.env" ]; then
  printf '@ranks %s\n' "$(bounded 10 sed -n "s/^ORCH_RANKS_PER_NODE='\([0-9]*\)'\$/\1/p" "$files/job.env" | head -n 1)"
fi
