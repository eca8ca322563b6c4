#!/bin/sh
# Offload is bit-identical to resident training: cut at every legal place, with up to as many parts, with the least memory,
# with all, and between.   bits.sh PDC MODEL [TARGET]
pdc=$1 model=$2 target=${3:-c}
. "$(dirname "$0")/../bits/common.sh"
. "$top/tests/spill/limits.sh"
model=$top/tests/bits/$2.pdm
whole whole 1 --schedule sequential --microbatch 2

find_cuts

# at NAME SHARE PERCENT PLACES: cut there, with so much of the memory, of which so much is for what stays.
at() {
  taken || return 0
  limited plan.json "$2" "$3" "${microbatch:-2}" "$4" "$model"
  next_place
  compared "$1" 1 --plan plan.json --spill "$place"
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

# What parts save comes and goes, too: of all, of every other, of the last two of three, under each kind of limit.
for keeps in 1 01 10 011; do
  at "keeps_$keeps" 0 0 "$every"
  at "keeps_${keeps}_half" 50 60 "$every"
done
keeps=

# A microbatch is a batch: nothing comes between a part's forward and its backward.
whole whole_batch 1 --schedule sequential --microbatch 6
microbatch=6
keeps=10
at one_microbatch_keeps 10 50 "$every"
keeps=
at one_microbatch 20 80 "$every"
trained one_microbatch_whole 1 --schedule spilled --spill "$place" --microbatch 6 --split "$every"
finish
