# shellcheck shell=sh
# How this host sees the others: what their names resolve to, and the routes to them.
# Set before: names (to resolve), peers (addresses).
: "${names:=}" "${peers:=}"
for n in $names; do
  if has getent; then
    l=$(within 5 getent ahosts "$n" 2>/dev/null | while read -r a _; do printf '%s\n' "$a"; done | sort -u | one)
  elif has nslookup && l=$(within 5 nslookup "$n" 2>/dev/null); then
    l=$(printf '%s\n' "$l" | grep -E '^Address( [0-9]+)?: ' | tail -n +1 | while read -r _ a b; do printf '%s\n' "${b:-$a}"; done | grep -v '[#]' | sort -u | one)
  else
    l=$(while read -r a r; do case " $r " in *" $n "*) printf '%s\n' "$a" ;; esac; done </etc/hosts | sort -u | one)
  fi
  emit resolves "$n $l"
done
for p in $peers; do
  has ip || break
  l=$(ip -o route get "$p" 2>/dev/null | head -n 1)
  case $l in *' dev '*) d=${l#* dev } d=${d%% *} s=; case $l in *' src '*) s=${l#* src } s=${s%% *} ;; esac; emit route "$p $d $s" ;; *) emit route "$p - " ;; esac
done
emit did net
