#!/bin/sh
# One rank, steered by control files: $SUITE/ctl/<name>/go[.<rank>] holds its exit code.
# TERM goes to the whole group: without `trap ""` it would also end the `date` that records its time.
ctl=$SUITE/ctl/$ORCH_NAME
case " $DEAF " in
*" $RANK "*) trap 'echo "rank $RANK is deaf"' TERM ;;
*) trap 'trap "" TERM; echo "rank $RANK saw TERM at $(date +%s.%N)"; exit 143' TERM ;;
esac
echo "rank $RANK is up on $ORCH_HOST"
while :; do
    for order in "$ctl/go.$RANK" "$ctl/go"; do
        if [ -e "$order" ]; then
            read -r code <"$order"
            echo "rank $RANK ends with $code at $(date +%s.%N)"
            exit "$code"
        fi
    done
    sleep 0.1
done
