# shellcheck shell=sh disable=SC2154,SC2034
# What every script on the login node begins with. Set before: name, root (run_dir).
# The answer has sections: `@<label> <value>`, then lines that begin with a blank.
umask 077
dir=$root/$name
me=$(id -un)
bounded() { s=$1; shift; if command -v timeout >/dev/null 2>&1; then timeout -k 2 "$s" "$@"; else "$@"; fi; }

# Variables of a job, or defaults of sbatch, that this session inherited would change what is asked and submitted.
for v in $(env | sed -n 's/^\(SLURM_[A-Za-z0-9_]*\)=.*/\1/p; s/^\(SBATCH_[A-Za-z0-9_]*\)=.*/\1/p; s/^\(SRUN_[A-Za-z0-9_]*\)=.*/\1/p; s/^\(SQUEUE_[A-Za-z0-9_]*\)=.*/\1/p; s/^\(SINFO_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $v in SLURM_CONF | SLURM_CLUSTERS) ;; *) unset "$v" ;; esac
done

# The programs are where a login shell finds them: what sites set in /etc/profile.d is unknown to a shell without a login.
shell=$(command -v bash || echo /bin/sh)
# shellcheck disable=SC2016
login=$(bounded 10 "$shell" -lc 'printf "\norch-path:%s\norch-conf:%s\n" "$PATH" "${SLURM_CONF:-}"' </dev/null 2>/dev/null)
path=$(printf '%s\n' "$login" | sed -n 's/^orch-path://p' | tail -n 1)
conf=$(printf '%s\n' "$login" | sed -n 's/^orch-conf://p' | tail -n 1)
case $path in /*) PATH=$path ;; esac
case $conf in /*) SLURM_CONF=$conf && export SLURM_CONF ;; esac
export PATH

# lines: what is read, bounded, each line behind a blank.
lines() { head -n 400 | cut -c 1-1000 | sed 's/^/ /'; }

# ask LABEL COMMAND...: sets answer and code, and prints them as a section. A slurmctld that does not answer holds a command for some seconds.
ask() {
  label=$1; shift
  # Times are seconds since 1970. Not exported: sbatch would hand them to the job.
  answer=$(bounded 20 env SLURM_TIME_FORMAT=%s "$@" 2>&1 </dev/null)
  code=$?
  printf '@%s %s\n' "$label" "$code"
  [ -z "$answer" ] || printf '%s\n' "$answer" | lines
}

# known ID: keeps the highest id.
known() { case $1 in '' | 0* | *[!0-9]* | ??????????*) ;; *) if [ "$1" -gt "${job:-0}" ]; then job=$1; fi ;; esac; }

ended_state() {
  case $1 in
    COMPLETED | CANCELLED | FAILED | TIMEOUT | NODE_FAIL | PREEMPTED | OUT_OF_MEMORY | BOOT_FAIL | DEADLINE | REVOKED) ;;
    *) return 1 ;;
  esac
}

# find_job: sets job to this name's last one, state, partition and nodes to what squeue says of it, live to the one that has not ended. Jobs of other
# inventories may have the same name: ours were submitted in this directory.
find_job() {
  job='' state='' partition='' nodes='' live=''
  ask squeue squeue -h -t all -u "$me" -n "$name" -o '%i|%T|%N|%S|%P|%Z|%r'
  asked=$code
  if [ -f "$dir/slurm-job" ] && [ ! -L "$dir/slurm-job" ]; then { read -r id _ <"$dir/slurm-job"; } 2>/dev/null; known "${id:-}"; fi
  while IFS='|' read -r id _ _ _ _ at _; do
    [ "$at" != "$dir" ] || known "$id"
  done <<QUEUE
$answer
QUEUE
  # A rebuilt cluster counts its ids from 1 again: the directories are read last, and a live job takes precedence.
  if [ -z "$job" ]; then for d in "$dir"/slurm-[1-9]*; do [ ! -d "$d" ] || known "${d##*/slurm-}"; done; fi
  while IFS='|' read -r id is _ _ _ at _; do
    if [ "$at" = "$dir" ] || [ "$id" = "$job" ]; then ended_state "$is" || live=$id; fi
  done <<QUEUE
$answer
QUEUE
  [ "$asked" -eq 0 ] || live=''
  case $live in '' | 0* | *[!0-9]*) ;; *) job=$live ;; esac
  while IFS='|' read -r id is on _ in _; do
    if [ "$id" = "$job" ]; then state=$is partition=$in nodes=$on; fi
  done <<QUEUE
$answer
QUEUE
  printf '@job %s\n' "${job:-none}"
}

# One submission or removal at a time; one that was killed is over after three minutes: everything is bounded.
lock=$dir/slurm-submit.lock
has_lock=''
remove_old_lock() { find "$lock" -mmin +3 -exec rm -f {} \; 2>/dev/null; }
take_lock() {
  remove_old_lock
  (set -C; : >"$lock") 2>/dev/null || return 1
  has_lock=yes
  trap 'rm -f "$lock"' EXIT
}

# Secrets that wait for a job that has ended wait for nothing; those of a submission that is under way wait for its job.
remove_secrets() {
  if [ -z "$has_lock" ]; then
    remove_old_lock
    [ ! -e "$lock" ] || return 0
  fi
  [ ! -e "$dir/slurm-secrets" ] || [ ! -O "$dir/slurm-secrets" ] || rm -f "$dir/slurm-secrets"
}

printf '@root %s\n@clock %s\n' "$root" "$(date +%s)"
if ! command -v squeue >/dev/null 2>&1; then
  printf '@missing squeue\n'
  exit 0
fi
