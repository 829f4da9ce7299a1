# shellcheck shell=sh
# Reads files that a rank may have written: every process in the container can write the directory, so names, links, sizes and bytes are untrusted.
# Nothing of it is executed, followed, used in arithmetic or as a name before it is validated here. Sourced on the host.

within() { s=$1; shift; if command -v timeout >/dev/null 2>&1; then timeout "$s" "$@"; else "$@"; fi; }

# number TEXT: decimal digits, at most 18, without a leading zero. A range may hold more in the host's locale.
number() { case $1 in '' | *[!0123456789]* | 0?* | ???????????????????*) return 1 ;; esac; }

# seconds TEXT: digits, with or without a fraction.
seconds() { case $1 in '' | *[!0123456789.]* | *.*.* | .* | ?????????????????????????????????*) return 1 ;; esac; }

# wrapper TEXT: the base name of a wrapper's files, `node`, `rank-<rank>.<life>` or `task-<number>`. Nine digits are enough.
wrapper() {
  case $1 in
    node) ;;
    rank-*.*)
      n=${1#rank-} k=${1##*.} n=${n%.*}
      case $n in ??????????*) return 1 ;; esac
      case $k in ??????????*) return 1 ;; esac
      number "$n" && number "$k" ;;
    task-*)
      n=${1#task-}
      case $n in ?????*) return 1 ;; esac
      number "$n" ;;
    *) return 1 ;;
  esac
}

# plain NAME: whether it is a regular file and not a link, checked before opening.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }

# cleaned TEXT: sanitizes it for a message; at most 80 characters of a safe set.
cleaned() {
  case $1 in
    *[!ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-]*) ;;
    *) printf '%.80s\n' "$1"; return 0 ;;
  esac
  printf %s "$1" | head -c 320 | LC_ALL=C tr -c 'A-Za-z0-9._-' '?' | cut -c1-80
}

# Opens $1 in the directory $2, checks after the opening that it is the regular file with that name, and uses it as standard input.
# Without /proc (the sandbox on macOS) there are no containers of other users.
# shellcheck disable=SC2016
OPENED='proper() { [ ! -d /proc/self/fd ] || { [ "$(readlink /proc/self/fd/0)" = "$2/$1" ] && [ -f /proc/self/fd/0 ]; }; }
'

# bytes NAME DIR FROM COUNT: so many bytes of a file from a byte on, counted from 1; fewer where it ends before.
# shellcheck disable=SC2016
BYTES=$OPENED'{ proper "$1" "$2" && tail -c "+$3" | head -c "$4"; } <"$1"'
bytes() { within 60 sh -c "$BYTES" sh "$@" 2>/dev/null; }

# first_lines DIR NAME...: prints `NAME LINE` for each file with a line of harmless characters. DIR is the present directory, without links.
# shellcheck disable=SC2016
LINES_OF=$OPENED'd=$1 nl="
"; shift
for f do
  [ -f "$f" ] && [ ! -L "$f" ] || continue
  { l=; proper "$f" "$d" && l=$(head -c 200); } <"$f" 2>/dev/null || continue
  l=${l%%"$nl"*}
  case $l in "" | *[!A-Za-z0-9\ .:_-]*) ;; *) printf "%s %s\n" "$f" "$l" ;; esac
done'
first_lines() { within 20 sh -c "$LINES_OF" sh "$@" 2>/dev/null; }
