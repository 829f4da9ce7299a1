# shellcheck shell=sh
# The log of a wrapper: a pipe that an appender (append.sh) drains into ${F}BASE.log. POSIX sh and Linux with /proc; needs dd, env, ls, mkfifo,
# readlink, rm, tee and wc of the image, and uses setsid where it has it. Sourced with R = the directory of the run's scripts,
# F = <out dir>/<run id>. (absolute), log_max = the bound of a log in bytes (empty: none).

# log_through BASE: stdout and stderr of this shell become the pipe. Its other descriptors, umask and signals stay as they are.
# Status 1: there is no pipe. ${F}BASE.note then says what was done instead:
#   direct: WHY   output goes straight into the log: a full disk fails the writer, and a program that reopens its stderr can erase the log
#   none: WHY     nothing can be written under the log's name: output is discarded
# With status 0 there can be a note too:
#   group         no setsid: the appender stays in this process group, and a KILL of the group can lose what the pipe and dd hold, 128 KiB
log_through() {
  log_mask=$(umask)
  umask 022
  exec 2>/dev/null
  log_at=$F$1 log_why=
  rm -f "$log_at.pipe" "$log_at.note" "$log_at.lost" "$log_at.end" "$log_at.end.new"
  log_check
  if log_open "$log_at.log"; then log_made='direct'; else log_made='none' log_why='the log cannot be made'; fi
  if [ -z "$log_why" ] && log_pipe && log_start; then
    # Opened again for writing only: the pipe ends with its last writer.
    exec 1>/proc/self/fd/2 2>&1
    command -v setsid >/dev/null || log_make "$log_at.note" "group
"
  else
    [ "$log_made" = direct ] || exec 1>/dev/null
    exec 2>&1
    log_make "$log_at.note" "$log_made: ${log_why:=the appender cannot be started}
"
    # No appender buffers anything.
    log_make "$log_at.end" ''
  fi
  umask "$log_mask"
  [ -z "$log_why" ]
}

# log_make FILE TEXT: a new regular file, or nothing: no link is followed.
log_make() { (set -C; printf '%s' "$2" >"$1") 2>/dev/null; }

# log_check: whether this machine and image have what the pipe needs. Sets log_why.
log_check() {
  [ -e /proc/self/fd/2 ] || { log_why='/proc is missing'; return; }
  [ -r "$R/append" ] || { log_why='the appender is missing'; return; }
  for log_tool in dd env ls mkfifo readlink rm tee wc; do
    command -v "$log_tool" >/dev/null || { log_why="$log_tool is missing"; return; }
  done
}

# log_is FILE: whether descriptor 9 is open on the file with this name, and not on the target of a link.
log_is() { log_dir=$(cd -P -- "${1%/*}" && pwd -P) && [ "$(readlink /proc/self/fd/9)" = "${log_dir%/}/${1##*/}" ]; }

# log_ours FILE: as log_is, and it is a regular file without further hard links, which could belong to another user.
log_ours() {
  # shellcheck disable=SC2046
  log_is "$1" && [ -f /proc/self/fd/9 ] && set -- $(ls -lnL /proc/self/fd/9) && [ "$2" = 1 ]
}

# log_open FILE: stdout becomes the log, opened for appending. A log that is there is continued: a wrapper can be started twice.
log_open() {
  if [ -n "$log_why" ]; then
    if ! [ -f "$1" ] || [ -h "$1" ]; then rm -f "$1"; fi
    command exec 1>>"$1"
    return
  fi
  # `<>` does not wait if a FIFO took the name meanwhile.
  if ! { [ -f "$1" ] && ! [ -h "$1" ] && command exec 1<>"$1" && log_ours "$1" 9>&1; }; then
    rm -f "$1"
    set -C
    command exec 1>"$1"; log_status=$?
    set +C
    [ "$log_status" = 0 ] && log_ours "$1" 9>&1 || return
  fi
  command exec 1>>/proc/self/fd/1
}

# log_pipe: stderr becomes both ends of a new pipe, whose name is removed.
log_pipe() {
  if mkfifo -m 600 "$log_at.pipe"; then
    command exec 2<>"$log_at.pipe" && [ -p /proc/self/fd/2 ] && log_is "$log_at.pipe" 9>&2 && rm -f "$log_at.pipe" && return
    rm -f "$log_at.pipe"
  fi
  log_why='mkfifo failed'
  return 1
}

# log_start: starts the appender: the child of init, in a session of its own, in /, with an environment that has neither the run's mark nor
# secrets. Its descriptors: 3 the pipe's end for reading, 4 the log, 5 the room in which it notes losses.
log_start() (
  trap '' HUP INT QUIT ALRM TERM USR1 USR2 PIPE XFSZ
  command exec 0</dev/null 3</proc/self/fd/2 4>&1 || exit
  exec 1>/dev/null 2>&1
  set -C
  command exec 5>"$log_at.lost" || exec 5>/dev/null
  printf '%4095s\n' '' >&5
  command : >"$log_at.end.new"
  exec 6>&- 7>&- 8>&- 9>&-
  for log_fd in /proc/self/fd/*; do
    case ${log_fd##*/} in
      ?) ;;
      # dash knows only one digit, and takes the others for a word.
      *) if (eval ': 11>&1 10>&11'); then eval "exec ${log_fd##*/}>&-"; fi ;;
    esac
  done
  case $log_max in *[!0-9]*) log_max= ;; esac
  set -- sh "$R/append" "$log_at" "$log_max"
  if command -v setsid >/dev/null; then set -- setsid "$@"; fi
  cd /
  exec env -i "PATH=$PATH" ${LD_LIBRARY_PATH+"LD_LIBRARY_PATH=$LD_LIBRARY_PATH"} LC_ALL=C "$@" &
)
