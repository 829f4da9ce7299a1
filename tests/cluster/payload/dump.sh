#!/bin/sh
# Says what it was given, byte for byte: its arguments and its environment, each ended by NUL, as base64.
printf 'argv '
printf '%s\0' "$@" | base64 | tr -d '\n'
printf '\nenv '
base64 <"/proc/$$/environ" | tr -d '\n'
printf '\n'
