#!/bin/sh
# The appender of one log: copies a pipe into the log until the pipe ends, which is when its last writer has ended. Started by pipe.sh as
# `sh <scripts>/append <out dir>/<run id>.<BASE> [MAX]`, with descriptor 3 = the pipe, 4 = the log opened for appending, 5 = BASE.lost, 4096 bytes.
# dd copies: in every implementation it holds at most one block, ends after COUNT blocks, and reports the end of the pipe. This shell starts it
# again when it was killed, and keeps the pipe open meanwhile, so that writers do not get SIGPIPE.
#
# BASE.lost has a line for each loss; the rest of the file is blank. Removed at the end if nothing was lost.
#   KIND OFFSET LEAST MOST    at OFFSET of the log, at least LEAST and at most MOST bytes are missing. The numbers of a line only grow.
#     killed   dd was killed
#     full     the file took no more: disk, quota or file-size limit. Where it took part of a block, OFFSET is behind that part
#     max      the log reached MAX bytes; MAX itself is exact
#     plain    dd could not be restarted, at OFFSET or later: no bound applies, nothing is counted, and BASE.end is not written
#     more     the losses after the first 40, in sum, from the first one's OFFSET on
# BASE.end is an empty file, created last: the log no longer grows.
at=$1 max=$2
block=65536
trap '' HUP INT QUIT ALRM TERM USR1 USR2 PIPE XFSZ
# Without fork or dd the shell ends here and becomes a plain copy: the pipe needs a reader.
trap 'lose plain "$size" 0 "$block"; exec cat <&3 >&4' EXIT
size=0 past='' entries=0 kind='' from=0 least=0 most=0
nl='
'

measure() { # sets size to the log's; the former stays where ls is killed again and again
  for _ in 1 2 3 4 5; do
    # shellcheck disable=SC2046
    set -- $(ls -lnL /proc/self/fd/4 2>/dev/null)
    case $5 in '' | *[!0-9]*) ;; *) size=$5; return ;; esac
  done
}

lose() { # KIND OFFSET LEAST MOST
  if [ "$kind" != more ] && [ "$kind $from" != "$1 $2" ]; then
    [ -z "$kind" ] || past="$past$kind $from $least $most$nl"
    kind=$1 from=$2 least=0 most=0 entries=$((entries + 1))
    [ "$entries" -le 40 ] || kind='more'
  fi
  least=$((least + $3)) most=$((most + $4))
  # The file has its size already, so this works on a full disk.
  printf '%s' "$past$kind $from $least $most$nl" 1<>/proc/self/fd/5
}

fit() { # sets bs and count, for copy, to what may be written without going beyond max
  bs=$block count=''
  [ -n "$max" ] || return 0
  left=$((max - size))
  # Smaller blocks near the end, so that few rounds lead there.
  for bs in $block 4096 256 1; do [ "$left" -lt $((bs * 16)) ] || break; done
  count=count=$((left / bs))
}

# copy and through set status: end (of the pipe), more, killed, failed.
copy() { # dd into the log
  # shellcheck disable=SC2086
  output=$(exec dd bs="$bs" $count <&3 2>&1 >&4)
  status=$?
  case $status:$nl$output in 0:*"$nl"0+0' records in'*) status='end' ;; 0:*) status='more' ;; esac
  case $status in
    end | more) ;;
    # No dd any more.
    126 | 127) exit ;;
    *) if [ "$status" -gt 128 ]; then status=killed; else status=failed; fi ;;
  esac
}

through() { # COMMAND...: one round of dd through a command, which ends with wc. Sets got = bytes read, slack = bytes that may be missing beside
  # shellcheck disable=SC2046
  set -- $({ { dd bs="$bs" count="$count" <&3 2>/dev/null || echo torn >&6; } | "$@"; } 6>&1)
  got='' slack=0 status='more'
  for word in "$@"; do case $word in torn) slack=$((bs * count)) ;; *[!0-9]*) ;; *) got=$word ;; esac; done
  if [ -z "$got" ]; then got=0 slack=$((bs * count)); fi
  [ "$got" != 0 ] || [ "$slack" != 0 ] || status='end'
}

try() { # tee passes on what it cannot write
  { tee -a /proc/self/fd/4 2>/dev/null; [ $? -lt 128 ] || echo torn >&6; } | wc -c
}

wait_for_room() { # discards and counts until the log takes a block
  bs=$block
  while :; do
    before=$size count=1
    # This close to max only copy can try.
    if [ -n "$max" ] && [ $((max - size)) -lt "$bs" ]; then through wc -c; else through try; fi
    [ "$status" != end ] || return 0
    measure
    kept=$((size - before))
    if [ "$kept" -lt 0 ] || [ "$kept" -gt "$got" ]; then kept=0; fi
    if [ "$kept" = "$got" ] && [ "$slack" = 0 ]; then return; fi
    lose full "$size" $((got - kept)) $((got - kept + slack))
    # Each block is tried, so that nothing is lost once there is space again; for a slow writer five times a second.
    [ "$got" -ge 8192 ] || sleep 0.2 2>/dev/null || sleep 1
    if [ -n "$max" ] && [ $((max - size)) -lt "$bs" ]; then return; fi
  done
}

discard() { # counts what comes after max
  bs=$block count=1
  while through wc -c; [ "$status" != end ]; do
    lose max "$size" "$got" $((got + slack))
    if [ "$got" -ge $((bs * 2)) ]; then count=256; else count=16; fi
  done
}

status='more'
while [ "$status" != end ]; do
  [ -z "$max" ] || measure
  if [ -n "$max" ] && [ "$size" -ge "$max" ]; then discard; break; fi
  fit
  copy
  case $status in
    killed) measure; lose killed "$size" 0 "$bs" ;;
    failed) measure; lose full "$size" 1 "$bs"; wait_for_room ;;
  esac
done

trap - EXIT
[ -n "$kind" ] || rm -f "$at.lost" 2>/dev/null
rm -f "$at.end" "$at.end.new" 2>/dev/null
set -C
: >"$at.end"
