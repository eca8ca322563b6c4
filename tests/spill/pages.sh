#!/bin/sh
# Blocks of many pages, which are reused from leaving to arriving blocks, at every limit between the least and all: results and
# memory are as planned, also if the kernel moves no pages, from the start or later.   pages.sh PDC INJECT
pdc=$1 inject=$2
. "$(dirname "$0")/../launch.sh"
. "$top/tests/spill/limits.sh"
model=$top/models/gpt_mini.pdm sizes="-D n_layer=3 -D n_embd=320 -D n_head=4 -D n_ctx=16 -D vocab_size=300 -D batch=4"
head -c 2000 "$top/tests/reference/text.txt" >text

level=-O0
build whole -n 1 --schedule sequential --microbatch 2 $sizes "$model"
launch 1 whole --data text --token-type u8 --steps 4 --seed 3 --save wanted || complain "it does not train"

beside=$(libraries)
# same WHAT: trains in parts.
same() {
  launch 1 parts --data text --token-type u8 --steps 4 --seed 3 --log log --spill "$place" --save saved 2>said || complain "$1: $(cat said)"
  cmp saved wanted || complain "$1: other weights than what does not spill"
  tail -1 log | tr -d ' ' | sed -n 's/.*"peak_bytes":\[\([0-9]*\)\].*"planned_peak_bytes":\[\([0-9]*\)\].*/\1 \2/p' >peaks
  read -r peak planned <peaks
  [ "$peak" -le $((planned + beside)) ] || complain "$1: it took $peak bytes, and $planned were planned"
  rm -f saved log
}

for limit in "0 0" "20 100" "40 50" "80 70"; do
  limited plan.json $limit 2 "h[1],h[2],ln_f" $sizes "$model"
  build parts --plan plan.json $sizes "$model"
  same "limit $limit"
  for after in 1 100; do
    export LD_PRELOAD="$inject" PD_SPILL_FAULT="stay:$after"
    same "limit $limit, pages stay from move $after on"
    unset LD_PRELOAD PD_SPILL_FAULT
    grep -q 'pages stay' said || complain "limit $limit: fewer moves than $after"
  done
done
exit $failed
