#!/bin/sh
# A training that spills starts from files, is checkpointed and goes on like any other, to the bit, also as one that does
# not spill and back; its memory is what was planned, and its file has no name.   training.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
model=$top/models/gpt_mini.pdm small="-D n_layer=6 -D n_embd=128 -D n_ctx=32"
head -c 2000 "$top/tests/reference/text.txt" >text

level=-O0
build whole -n 1 --schedule sequential --microbatch 2 $small "$model"
build parts -n 1 --schedule spilled --microbatch 2 --memory 14MiB $small "$model"
grep -q '"chunks": [1-9]*[02-9]' parts/plan.json || complain "it is not in parts"

# train PROGRAM STEPS OPTIONS...
train() {
  program=$1 steps=$2 place=
  shift 2
  [ "$program" = parts ] && place="--spill $work"
  launch 1 "$program" --data text --steps "$steps" --seed 3 --log log $place "$@" || complain "$program does not train: $*"
}

train whole 6 --save wanted
train parts 6 --save saved
cmp saved wanted || complain "other weights than what does not spill"
tail -1 log | tr -d ' ' | sed -n 's/.*"peak_bytes":\[\([0-9]*\)\].*"planned_peak_bytes":\[\([0-9]*\)\].*/\1 \2/p' >peaks
read -r peak planned <peaks
[ "$peak" -le $((planned + 8388608)) ] || complain "it took $peak bytes, and $planned were planned"
[ "$planned" -le $((14 * 1048576)) ] || complain "$planned bytes were planned for 14 MiB"
[ -z "$(ls -A | grep spill)" ] || complain "a file is left: $(ls -A)"

train parts 3 --checkpoint there
train whole 6 --checkpoint there --resume --save saved
cmp saved wanted || complain "resumed whole: other weights"
rm -rf there
train whole 3 --checkpoint there
train parts 6 --checkpoint there --resume --save saved --audit 2
cmp saved wanted || complain "resumed in parts: other weights"

train parts 0 --init wanted --save saved
cmp saved wanted || complain "--init in parts: other weights"
train whole 2 --init wanted --save again
train parts 2 --init wanted --save saved
cmp saved again || complain "--init and two updates: other weights"
launch 1 whole --data text --evaluate --init wanted --log log && figures log >evaluated
launch 1 parts --data text --evaluate --init wanted --log log --spill "$work" && figures log | cmp - evaluated ||
  complain "--evaluate: other losses"
exit $failed
