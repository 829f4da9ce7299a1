# shellcheck shell=sh
# Sends every log of a run by byte offset, one session a host. Runs inside the run directory; reads acknowledgements from its input.
#   F <file> <offset> <length>\n<bytes>   P <file> <pid> <start> <time>   X <file> <status> <time>   H <time> <free KiB> <total KiB>
# An acknowledgement is `<bytes> <frames>`: totals since the start. At most $window bytes and 256 frames are unacknowledged.
# With once set it ends with `E` when all that is there was sent.
# Set before: once, guards (whether somebody is there who ends the gang when a rank fails), window, frame (sizes in bytes), init (pid whose
# end is the end of all ranks; empty: unknown), offsets as o_<file>.
: "${window:=8388608}" "${frame:=4194304}" "${once:=}" "${guards:=}" "${init:=}"
sent=0 frames=0 acked=0 acked_frames=0 beat=0 gone=
ack() { read -r acked acked_frames || exit 0; }
frame_done() { frames=$((frames + 1)); while [ $((sent - acked)) -gt "$window" ] || [ $((frames - acked_frames)) -gt 256 ]; do ack; done; }
# The keeper reads it, who may be another user.
here() { t=$(date +%s); [ -z "$guards" ] || (umask 022; printf '%s\n' "$t" >attached.new && mv -f attached.new attached); }
# The directory may be removed under us: by another operator, or as an old run.
there() { [ -e run.json ] || [ -e settings ]; }
# Who removes the directory waits for those who have not yet told how it ended.
heard() { rm -f "following.$$"; }
if [ -z "$once" ]; then { true >"following.$$"; } 2>/dev/null; trap heard EXIT; fi
here
while :; do
  there || { printf 'N\n'; exit 0; }
  moved=
  ended=" "
  for f in *.rc; do [ -e "$f" ] && ended="$ended${f%.rc} "; done
  for f in *.pid; do
    b=${f%.pid}
    case $b in node | rank-*) ;; *) continue ;; esac
    case " $known " in *" $b "*) ;; *) { read -r pid start when <"$f"; } 2>/dev/null || continue; known="$known $b"; printf 'P %s %s %s %s\n' "$b" "$pid" "$start" "$when" ;; esac
  done
  # The launcher last: its end passes on what its ranks did, and is told after theirs.
  # shellcheck disable=SC2046,SC2012
  set -- $(LC_ALL=C ls -lnr . 2>/dev/null | while read -r _ _ _ _ size _ _ _ file; do case $file in node.log | rank-*.log) printf '%s %s ' "$size" "$file" ;; esac; done)
  waits=
  while [ $# -ge 2 ]; do
    size=$1 file=$2
    shift 2
    case $file in
      node.log) v=o_node ;;
      *) r=${file#rank-}; r=${r%.log}; v=o_rank_${r%.*}_${r#*.} ;;
    esac
    eval "at=\${$v:-0}"
    if [ "$at" -lt "$size" ]; then
      n=$((size - at))
      [ "$n" -gt "$frame" ] && n=$frame
      { printf 'F %s %s %s\n' "${file%.log}" "$at" "$n"; tail -c "+$((at + 1))" | head -c "$n"; } 2>/dev/null <"$file" || continue
      at=$((at + n)) sent=$((sent + n)) moved=1
      eval "$v=\$at"
      frame_done
    fi
    b=${file%.log}
    case $ended in *" $b "*)
      case " $told " in *" $b "*) continue ;; esac
      if [ "$at" -lt "$size" ] || [ "$b$waits" = node1 ]; then waits=1; continue; fi
      { read -r rc when <"$b.rc"; } 2>/dev/null || continue
      told="$told $b"; printf 'X %s %s %s\n' "$b" "$rc" "$when"; moved=1
      [ "$b" != node ] || heard ;;
    esac
  done
  # The container, or the keeper, is gone and left no status: nothing of it can run any more.
  if [ -n "$init" ] && [ -e node.pid ] && [ ! -e node.rc ] && [ -z "$gone" ] && [ ! -d "/proc/$init" ] && ! kill -0 "$init" 2>/dev/null; then
    sleep 1
    [ -e node.rc ] || ! there || { gone=1; printf 'X node gone %s\n' "$(date +%s)"; }
  fi
  # Every 5 s of quiet, or some hundred frames: a sign of life that wants an answer, and the note that somebody is attached.
  beat=$((beat + 1))
  if [ "$beat" -ge $((25 + ${moved:-0} * 100)) ]; then
    beat=0 free=0 total=0
    here
    # shellcheck disable=SC2046
    set -- $(df -Pk . 2>/dev/null | tail -n 1)
    [ $# -ge 4 ] && free=$4 total=$2
    printf 'H %s %s %s\n' "$t" "$free" "$total"
    frame_done
  fi
  if [ -z "$moved" ]; then
    while [ "$frames" -gt "$acked_frames" ]; do ack; done
    if [ -n "$once" ]; then printf 'E\n'; exit 0; fi
    sleep 0.2 2>/dev/null || sleep 1
  fi
done
