#!/bin/sh
# Prints its arguments and its environment byte for byte, each terminated by NUL, as base64.
printf 'argv '
printf '%s\0' "$@" | base64 | tr -d '\n'
printf '\nenv '
base64 <"/proc/$$/environ" | tr -d '\n'
printf '\n'
