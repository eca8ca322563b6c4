#!/bin/sh
# A model that spills gives the bytes of the one that does not: cut at every legal place, in as many parts as it has such
# places, in few parts for little memory.   bits.sh PDC MODEL
pdc=$1 model=$2
. "$(dirname "$0")/../bits/common.sh"
model=$top/tests/bits/$2.pdm
whole whole 1 --schedule sequential --microbatch 2

cuts=$("$pdc" --stop-after cut -d c "$model" 2>&1 |
  sed -n 's/^piece [1-9][0-9]* nodes [0-9.]* "\([^"]*\)".*/\1/p' | tr ' ' '%')
[ "$(echo "$cuts" | wc -l)" -ge 12 ] || complain "only these cuts: $cuts"
for cut in $cuts; do
  trained "at_$cut" 1 --schedule spilled --spill "$work" --microbatch 2 --split "$(echo "$cut" | tr % ' ')"
done
trained every_part 1 --schedule spilled --spill "$work" --microbatch 2 --split "$(echo $cuts | tr ' %' ', ')"

# A microbatch is a batch: nothing comes between a part's forward and its backward.
whole whole_batch 1 --schedule sequential --microbatch 6
trained one_microbatch 1 --schedule spilled --spill "$work" --microbatch 6 --split "$(echo $cuts | tr ' %' ', ')"
exit $failed
