#!/bin/sh
# Looks like a training run: a process group, steps with a falling loss, a progress bar on standard error, a checkpoint at the end or on TERM.
# STEPS (18): how many. PAUSE (1): seconds a step. FAIL_RANK, FAIL_STEP: this rank dies at this step as CUDA does when memory is short.
rank=${RANK:-0}
steps=${STEPS:-18}
pause=${PAUSE:-1}
sleeper=

say() { printf '%s\n' "$*"; }

stop() {
    [ -z "$sleeper" ] || kill -9 "$sleeper" 2>/dev/null
    say "[rank $rank] SIGTERM: checkpoint written at step $step, leaving"
    exit 143
}
trap stop TERM INT

fail() {
    {
        say "Traceback (most recent call last):"
        say "  File \"train.py\", line 212, in <module>"
        say "    loss.backward()"
        say "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU ${LOCAL_RANK:-0} has a total capacity of 79.11 GiB of which 1.04 GiB is free."
    } >&2
    exit 1
}

bar() {
    done_=$(($1 * 20 / steps))
    left=$((20 - done_))
    marks=$(printf '%*s' "$done_" '')
    while case $marks in *' '*) true ;; *) false ;; esac; do marks="${marks%% *}#${marks#* }"; done
    printf '\r%3d%%|%s%*s| %d/%d [%02d:%02d]' $(($1 * 100 / steps)) "$marks" "$left" '' "$1" "$steps" $(($1 / 60)) $(($1 % 60)) >&2
}

step=0
say "[rank $rank] starting on $(hostname), GPU ${LOCAL_RANK:-0} of ${LOCAL_WORLD_SIZE:-1}, master ${MASTER_ADDR:-none}:${MASTER_PORT:-none}"
say "[rank $rank] Initialized process group with ${WORLD_SIZE:-1} processes"
seed=$((rank * 7919 + 17))
while [ "$step" -lt "$steps" ]; do
    step=$((step + 1))
    if [ "$rank" = "${FAIL_RANK:-none}" ] && [ "$step" -ge "${FAIL_STEP:-3}" ]; then fail; fi
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    loss=$((1900 + 8800 / (step + 1) + seed % 90))
    speed=$((51000 + seed % 3000))
    sleep "$pause" &
    sleeper=$!
    wait "$sleeper" 2>/dev/null
    sleeper=
    bar "$step"
    # After a carriage return, like the bar before it: a view that shows only the last part of a line shows this one.
    printf '\r%s\n' "step $step/$steps loss $((loss / 1000)).$(printf '%03d' $((loss % 1000))) lr 3.0e-04 grad_norm 0.$((60 + seed % 40)) tokens/s $speed"
done
if [ "$rank" = 0 ]; then say "[rank 0] checkpoint written at step $step"; fi
say "[rank $rank] training finished"
