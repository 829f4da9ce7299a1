# shellcheck shell=sh
# Reads what a rank may have written: its directory is open to everybody in the container, so names, links, sizes and bytes there are hostile.
# Nothing of it is run, followed, computed with or used as a name before it has passed here. Sourced on the host.

within() { s=$1; shift; if command -v timeout >/dev/null 2>&1; then timeout "$s" "$@"; else "$@"; fi; }

# number TEXT: decimal digits, at most 18, without a leading zero.
number() { case $1 in '' | *[!0-9]* | 0?* | ???????????????????*) return 1 ;; esac; }

# seconds TEXT: digits, with or without a fraction.
seconds() { case $1 in '' | *[!0-9.]* | *.*.* | .* | ?????????????????????????????????*) return 1 ;; esac; }

# wrapper TEXT: the name of a wrapper's files, `node` or `rank-<rank>.<life>`. Nine digits are enough.
wrapper() {
  case $1 in
    node) ;;
    rank-*.*)
      n=${1#rank-} k=${1##*.} n=${n%.*}
      case $n in ??????????*) return 1 ;; esac
      case $k in ??????????*) return 1 ;; esac
      number "$n" && number "$k" ;;
    *) return 1 ;;
  esac
}

# plain NAME: a regular file and no link, as far as can be seen before it is opened.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }

# cleaned TEXT: for a message; at most 80 characters of a small set.
cleaned() {
  case $1 in
    *[!ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-]*) ;;
    *) printf '%.80s\n' "$1"; return 0 ;;
  esac
  printf %s "$1" | head -c 320 | LC_ALL=C tr -c 'A-Za-z0-9._-' '?' | cut -c1-80
}

# Opens $1 in the directory $2, checks after the opening that it is the regular file with that name, and uses it as standard input.
# Where there is no /proc there is no other owner's container either: the sandbox on macOS.
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
