#!/bin/sh
# A model that spills gives the bytes of the one that does not: cut at every legal place, in as many parts as it has such
# places, with the least memory, with all, and between.   bits.sh PDC MODEL [TARGET]
pdc=$1 model=$2 target=${3:-c}
. "$(dirname "$0")/../bits/common.sh"
. "$top/tests/spill/limits.sh"
model=$top/tests/bits/$2.pdm
whole whole 1 --schedule sequential --microbatch 2

cuts=$("$pdc" --stop-after cut -d c "$model" 2>&1 |
  sed -n 's/^piece [1-9][0-9]* nodes [0-9.]* "\([^"]*\)".*/\1/p' | tr ' ' '%')
[ "$(echo "$cuts" | wc -l)" -ge 12 ] || complain "only these cuts: $cuts"

# at NAME SHARE PERCENT PLACES: cut there, with so much of the memory, of which so much is for what stays.
at() {
  limited plan.json "$2" "$3" "${microbatch:-2}" "$4" "$model"
  next_place
  trained "$1" 1 --plan plan.json --spill "$place"
}

# Every cut with another limit, from the least memory to all but a little, and with all, some or none of it for what stays.
share=0
for cut in $cuts; do
  at "at_$(echo "$cut" | tr % _)" $share $((share * 7 % 101)) "$(echo "$cut" | tr % ' ')"
  share=$(((share + 37) % 100))
done
every=$(echo $cuts | tr ' %' ', ')
for limit in "0 0" "0 100" "10 50" "30 100" "60 30" "95 100"; do
  at "every_part_$(echo "$limit" | tr ' ' _)" $limit "$every"
done
trained every_part 1 --schedule spilled --spill "$place" --microbatch 2 --split "$every"

# A microbatch is a batch: nothing comes between a part's forward and its backward.
whole whole_batch 1 --schedule sequential --microbatch 6
microbatch=6
at one_microbatch 20 80 "$every"
trained one_microbatch_whole 1 --schedule spilled --spill "$place" --microbatch 6 --split "$every"
exit $failed
