#!/bin/sh
# A pipeline with offload is bit-identical to one without: two and three stages, cut in many places, in one
# part and in several, with the least memory, with all, and between.   stages.sh PDC MODEL [TARGET]
pdc=$1 target=${3:-c} model=$2
. "$(dirname "$0")/../bits/common.sh"
. "$top/tests/spill/limits.sh"
model=$top/tests/bits/$2.pdm
whole whole 1 --schedule sequential --microbatch 2

find_cuts

# at NAME STAGES SHARE PERCENT PLACES: cut there, a stage behind each '/', with so much of the memory, of which so much is for
# what stays.
at() {
  name=$1 stages=$2
  taken || return 0
  limited plan.json "$3" "$4" "${microbatch:-2}" "$5" "$model"
  next_place
  compared "$name" "$stages" --plan plan.json --spill "$place"
}

# places EVERY STAGE...: all cuts, a part each, or each so many of them; stages start at the numbers, from 1.
places() {
  every=$1
  shift
  echo "$cuts" | awk -v every="$every" -v starts=" $* " '
    { mark = index(starts, " " NR " ") ? "/" : "" }
    mark || NR % every == 0 { printf "%s%s%s", n++ ? "," : "", mark, $0 }' | tr '%' ' '
}
many=$(echo "$cuts" | wc -l)

# The second stage starts at each cut in turn, with another limit and share; parts keep or recompute in another pattern.
share=0 start=1
while [ $start -le "$many" ]; do
  keeps=$(echo "1 01 10 011 0 001" | cut -d ' ' -f $((start % 6 + 1)))
  at "starts_at_$start" 2 $share $((share * 7 % 101)) "$(places $((1 + start % 3)) $start)"
  share=$(((share + 37) % 100)) start=$((start + 1))
done

# Every cut a part, under each kind of limit.
half=$((many / 2)) third=$((many / 3))
for limit in "0 0" "0 100" "30 100" "95 100"; do
  for keeps in 0 1 01; do
    at "parts_$(echo "$limit $keeps" | tr ' ' _)" 2 $limit "$(places 1 $half)"
  done
done
keeps=01
at three_stages 3 20 50 "$(places 1 $third $((2 * third)))"

# A stage in one part before one that spills, behind one, and between two.
first=$(echo "$cuts" | sed -n "${half}p" | tr % ' ') last=$(echo "$cuts" | tail -1 | tr % ' ')
at one_part_first 2 0 50 "/$first,$last"
at one_part_last 2 0 50 "$(places 2 "$many")"
at one_part_between 3 0 50 "$(echo "$cuts" | sed -n 1p | tr % ' '),/$first,/$(echo "$cuts" | sed -n "$((half + 1))p" | tr % ' '),$last"
keeps=

# The planner cuts, with the memory that each has.
trained planned 2 --stages 2 --schedule spilled --spill "$place" --microbatch 2
trained stages_alone 2 --stages 2 --schedule spilled --spill "$place" --microbatch 2 --split "$first"

# A microbatch is a batch.
whole whole_batch 1 --schedule sequential --microbatch 6
microbatch=6
keeps=01
at one_microbatch 2 20 80 "$(places 1 $half)"
finish
