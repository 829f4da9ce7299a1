# shellcheck shell=sh
# Words that the questions of the checks share. Every question prints `key value` lines and `did NAME` at its end; none changes anything.
one() { tr '\n\r\t' '   ' | cut -c1-1500; }
say() { printf '%s %s\n' "$1" "$2"; }
has() { command -v "$1" >/dev/null 2>&1; }
within() { s=$1; shift; if has timeout; then timeout "$s" "$@"; else "$@"; fi; }
# said SECONDS WORDS...: what they print, complaints included, on one line.
said() { within "$@" 2>&1 | one; }
# sum: a digest of what comes in, with whatever can make one.
sum() { if has sha256sum; then sha256sum | cut -c1-16; elif has shasum; then shasum -a 256 | cut -c1-16; else cksum | tr ' ' -; fi; }
