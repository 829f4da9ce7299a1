# shellcheck shell=sh
# The single-quoted text is for another shell.
# shellcheck disable=SC2016
# Tries TCP connections, for hosts whose sshd forwards nothing. Set before: targets (label,address,port), seconds.
: "${targets:=}" "${seconds:=3}"
for t in $targets; do
  label=${t%%,*} rest=${t#*,} port=${rest##*,} a=${rest%,*}
  (
    rc=9 text=
    if has python3; then
      text=$(within $((seconds + 2)) python3 -c 'import socket,sys
try: socket.create_connection((sys.argv[1],int(sys.argv[2])),float(sys.argv[3])).close()
except Exception as e: print(e); sys.exit(1)' "$a" "$port" "$seconds" 2>&1); rc=$?
    elif has bash && has timeout; then text=$(timeout "$seconds" bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$a" "$port" 2>&1); rc=$?
    elif has nc; then text=$(within "$seconds" nc -z -w "$seconds" "$a" "$port" 2>&1 </dev/null); rc=$?
    fi
    case $rc,$text in
    0,*) emit way "$label open" ;;
    9,) emit way "$label untold neither python3, bash nor nc to try it with" ;;
    *efused*) emit way "$label refused" ;;
    124,* | *'timed out'*) emit way "$label blocked no answer within $seconds s" ;;
    *) emit way "$label blocked $(printf %s "${text:-exit $rc}" | one | cut -c1-200)" ;;
    esac
  ) &
done
wait
emit did reach
