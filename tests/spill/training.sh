#!/bin/sh
# A training with offload starts from files, writes checkpoints and resumes, bit-identical to a training without offload and
# interchangeable with it; its memory is as planned, and its file has no name. After a kill it resumes from its checkpoint.
# With two stages both offload.   training.sh PDC [TARGET [STAGES]]
pdc=$1 target=${2:-c} stages=${3:-1}
. "$(dirname "$0")/../launch.sh"
. "$top/tests/spill/limits.sh"
model=$top/models/gpt_mini.pdm small="-D n_layer=6 -D n_embd=128 -D n_ctx=32" mib=14 delays=0
[ "$stages" = 1 ] || { mib=12 delays=0,0; }
limit="--memory ${mib}MiB --schedule spilled"
if [ "$target" = cuda ]; then # whose stand-in is slow
  model=$top/tests/bits/tied.pdm small="-D width=64"
  cuts=fc,proj
  [ "$stages" = 1 ] || cuts=fc,/dropout,proj
  limited plan.json 20 50 2 $cuts $small "$model"
  limit="--plan plan.json"
fi
head -c 2000 "$top/tests/reference/text.txt" >text

level=-O0
build whole -n 1 --schedule sequential --microbatch 2 $small "$model"
build parts -n "$stages" --microbatch 2 $limit $small "$model"
grep -q '"chunks": \([1-9]*[02-9]\|.[02-9], [02-9]\)' parts/plan.json || complain "it is not in parts"

# train PROGRAM STEPS OPTIONS...
train() {
  program=$1 steps=$2 to= of=1
  shift 2
  [ "$program" = parts ] && to="--spill $place" of=$stages
  launch "$of" "$program" --data text --steps "$steps" --seed 3 --log log $to "$@" || complain "$program does not train: $*"
}

train whole 6 --save wanted
train parts 6 --save saved
cmp saved wanted || complain "other weights than what does not spill"
# bytes KEY: the log's, a number a rank.
bytes() { tail -1 log | tr -d ' ' | sed -n "s/.*\"$1\":\[\([0-9,]*\)\].*/\1/p" | tr ',' '\n'; }
bytes planned_peak_bytes >planned
[ "$(wc -l <planned)" -ge "$stages" ] || complain "no planned bytes: $(tail -1 log)"
bytes peak_bytes | paste - planned | while read -r peak planned; do
  [ "$target" = cuda ] || [ "$peak" -le $((planned + $(libraries))) ] || echo "it took $peak bytes, and $planned were planned"
  [ "$target" = cuda ] || [ "$planned" -le $((mib * 1048576)) ] || echo "$planned bytes were planned for $mib MiB"
done >more
[ -s more ] && complain "$(cat more)"
[ -z "$(ls -A | grep spill)" ] || complain "a file is left: $(ls -A)"

train parts 3 --checkpoint there
train whole 6 --checkpoint there --resume --save saved
cmp saved wanted || complain "resumed whole: other weights"
# A trace changes nothing, and shows every pass once, with the order that the schedule has; nor do CUDA graphs.
train parts 6 --save saved --run run
cmp saved wanted || complain "--run: other weights"
python3 "$top/tests/report/check_trace.py" run 6 "$delays" || complain "the trace"
if [ "$target" = cuda ]; then
  for seed in 1 2; do
    export CUDA_HOST_SEED=$seed
    train parts 6 --save saved --graphs
    cmp saved wanted || complain "--graphs: other weights"
  done
  train parts 6 --save saved --graphs --trace trace.json
  cmp saved wanted || complain "--graphs --trace: other weights"
  unset CUDA_HOST_SEED
fi

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
launch "$stages" parts --data text --evaluate --init wanted --log log --spill "$place" && figures log | cmp - evaluated ||
  complain "--evaluate: other losses"

# Killed at any time, again and again, and then left alone: of several stages by tests/ranks/killed.
[ "$stages" = 1 ] || exit $failed
rm -rf there
for seconds in 1 2 3; do
  timeout -s KILL $seconds "$work/parts/stage0" --quiet --peak 1e9 --data text --steps 6 --seed 3 --spill "$place" \
    --checkpoint there --checkpoint-every 1 $(ls -d there 2>/dev/null | sed 's/.*/--resume/') >/dev/null 2>&1
done
train parts 6 --checkpoint there $(ls -d there 2>/dev/null | sed 's/.*/--resume/') --save saved
cmp saved wanted || complain "killed and resumed: other weights"
exit $failed
