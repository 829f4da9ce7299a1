# shellcheck shell=sh
# Directories and files that the inventory names: what they are, on which file system, and what is in them.
# Set before: files (quoted for eval): pairs of a kind (`look`: no listing, `list`: with one) and a path.
: "${files:=}"
eval "set -- $files"
at=0
while [ $# -gt 1 ]; do
  kind=$1 f=$2; shift 2
  # shellcheck disable=SC2088
  case $f in '~') f=$HOME ;; '~/'*) f=$HOME/${f#\~/} ;; esac
  (
    # A stale network mount blocks every process that accesses it.
    # shellcheck disable=SC2016
    t=$(within 5 sh -c 'if [ -d "$1" ]; then echo directory; elif [ -f "$1" ]; then echo file; elif [ -e "$1" ]; then echo other; else echo missing; fi' sh "$f" 2>/dev/null) || t=hung
    emit file "$at type ${t:-hung}"
    case $t in missing | hung | '') exit 0 ;; esac
    s=$(within 5 stat -f -c %T "$f" 2>/dev/null) || s=$(df -PT "$f" 2>/dev/null | tail -n 1 | { read -r _ s _; printf %s "$s"; })
    emit file "$at system ${s:--}"
    if [ -w "$f" ]; then emit file "$at writable yes"; else emit file "$at writable no"; fi
    [ "$kind" = list ] || exit 0
    if [ "$t" = file ]; then emit file "$at content 1 sizes:$(wc -c <"$f" | tr -d ' ')-$(head -c 1048576 "$f" | sum)"; exit 0; fi
    # GNU find prints sizes; others only names.
    if find / -maxdepth 0 -printf '' 2>/dev/null; then way=sizes; else way=names; fi
    # shellcheck disable=SC2016
    l=$(within 20 sh -c 'cd "$1" || exit 1; if [ "$2" = sizes ]; then find . -type f -printf "%P %s\n"; else find . -type f; fi 2>/dev/null | head -n 200000 | LC_ALL=C sort' sh "$f" $way)
    rc=$?
    if [ $rc -ne 0 ]; then emit file "$at content ? $rc"; exit 0; fi
    n=$(printf '%s' "$l" | grep -c .)
    emit file "$at content $n $way:$(printf '%s\n' "$l" | sum)"
    printf '%s\n' "$l" | head -n 400 | while IFS= read -r l; do [ -n "$l" ] && emit "in$at" "$(printf %s "$l" | one | cut -c1-300)"; done
  ) </dev/null &
  at=$((at + 1))
done
wait
emit did files
