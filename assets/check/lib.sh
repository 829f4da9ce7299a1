# shellcheck shell=sh
# Functions that the check probes share. Every probe prints `key value` lines and `did NAME` at its end; none changes anything.
one() { tr '\n\r\t' '   ' | cut -c1-1500; }
emit() { printf '%s %s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
within() { s=$1; shift; if has timeout; then timeout "$s" "$@"; else "$@"; fi; }
# output_of SECONDS COMMAND...: its output, stderr included, on one line.
output_of() { within "$@" 2>&1 | one; }
# sum: a digest of stdin, with the first tool available.
sum() { if has sha256sum; then sha256sum | cut -c1-16; elif has shasum; then shasum -a 256 | cut -c1-16; else cksum | tr ' ' -; fi; }
