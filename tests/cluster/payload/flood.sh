#!/bin/sh
# Writes a 50 MB log in pieces, each once its control file exists; exits once the file `end` exists.
ctl=$SUITE/ctl/$ORCH_NAME
piece=0
while [ "$piece" -lt 10 ]; do
    until [ -e "$ctl/piece.$piece" ]; do sleep 0.05; done
    awk -v rank="$RANK" -v piece="$piece" 'BEGIN {
        for (line = 0; line < 50000; line++)
            printf "rank %s piece %s line %08d: %s\n", rank, piece, line, "the quick brown fox jumps over the lazy dog and back again, 0123456789"
    }'
    piece=$((piece + 1))
done
echo "rank $RANK wrote all"
until [ -e "$ctl/end" ]; do sleep 0.05; done
