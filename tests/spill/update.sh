#!/bin/sh
# The place of updates with offload from a GPU: the planner chooses the faster, --update and plans override it, impossible
# choices are refused, and a training can resume with the other place.   update.sh PDC
pdc=$1 target=cuda
. "$(dirname "$0")/../launch.sh"
. "$top/tests/spill/limits.sh"
model=$top/models/gpt_mini.pdm
sizes="-D batch=4 -D n_layer=2 -D n_embd=512 -D n_head=4"

# planned_to WHERE OPTIONS...: the plan has parameters updated there, and is no slower than the one that says the other.
planned_to() {
  where=$1
  shift
  set -- --target cuda --cluster v100_10gbit -n 1 --schedule spilled --split 'h[1],ln_f' --microbatch 2 "$@" $sizes "$model"
  for update in "" host device; do
    "$pdc" --emit plan ${update:+--update $update} "$@" >"plan$update.json" || complain "no plan: $*"
  done
  grep -q "\"update\": \"$where\"" plan.json || complain "not planned to be updated on the $where: $*"
  for update in host device; do
    grep -q "\"update\": \"$update\"" plan$update.json || complain "--update $update: $(grep '"update"' plan$update.json)"
  done
  seconds() { sed -n 's/.*"batch_seconds": \([0-9.e-]*\),.*/\1/p' "$1"; }
  [ "$(seconds plan.json)" = "$(seconds plan$where.json)" ] || complain "$where: another plan than with --update"
  other=host
  [ "$where" = host ] && other=device
  echo "$(seconds plan.json) $(seconds plan$other.json)" | awk '{ exit !($1 < $2) }' ||
    complain "$where: $(seconds plan.json) s, and otherwise $(seconds plan$other.json)"
}
planned_to host --memory 136MiB # moments would be offloaded
planned_to device --memory 1GiB # everything is resident
grep -q 'The device updates, as requested' plandevice.json && grep -q 'The host updates, as requested: [0-9.]* ms' planhost.json &&
  grep -q 'The device updates, which is faster' plan.json || complain "$(grep why plan*.json)"

# refused TEXT OPTIONS...
refused() {
  text=$1
  shift
  "$pdc" --emit plan -n 1 --update host "$@" "$top/tests/bits/tied.pdm" >out 2>&1 && complain "not refused: $*"
  grep -q "$text.*PD0714" out && grep -q '^help: ' out || complain "$*: $(cat out)"
}
refused "with schedule 'flush' all parameters are resident" --target cuda --schedule flush
refused "processors update parameters in their own memory" --schedule spilled --spill .
refused "'--spill' keeps the parameters in files" --target cuda --schedule spilled --spill .
refused "'muon' needs whole parameters and cannot run on the host" --target cuda --schedule spilled -D 'optimizer=muon(lr=0.01)'

# A program for each; plans that say `host` are followed, and --update says otherwise.
model=$top/tests/bits/tied.pdm small="-D width=64 -D ema=0.9"
head -c 2000 "$top/tests/reference/text.txt" >text
for update in host device; do
  limited plan.json 20 50 2 fc,proj $small "$model"
  grep -q "\"update\": \"$update\"" plan.json || complain "limited to $update: $(grep '"update"' plan.json)"
  build $update --plan plan.json $small "$model"
done
"$pdc" --emit plan --target cuda --plan plan.json --update host $small "$model" | grep -q '"update": "host"' ||
  complain "--update host changes no plan"
sed 's/"update": "device"/"update": "there"/' plan.json >odd.json
"$pdc" --emit plan --target cuda --plan odd.json $small "$model" 2>&1 | grep -q "there is no update 'there' .PD0603" ||
  complain "another place is taken"
launch 1 host --data text --steps 1 --spill "$work" >out 2>&1 && complain "a file is taken for what the host updates"
grep -q "update parameters in host memory" out || complain "--spill DIR: $(cat out)"

# train PROGRAM STEPS OPTIONS...: by three threads of the host, or one.
train() {
  program=$1 steps=$2
  shift 2
  launch 1 "$program" --data text --steps "$steps" --seed 3 --log log "$@" || complain "$program does not train: $*"
}
train device 6 --save wanted
for OMP_NUM_THREADS in 1 3; do
  export OMP_NUM_THREADS
  train host 6 --save saved
  cmp saved wanted || complain "the host's update, $OMP_NUM_THREADS threads: other weights"
  grep -q "\"threads\":$OMP_NUM_THREADS," log || complain "threads: $(head -1 log)"
done
train host 3 --checkpoint there
train device 6 --checkpoint there --resume --save saved
cmp saved wanted || complain "resumed on the device: other weights"
rm -rf there
train device 3 --checkpoint there
train host 6 --checkpoint there --resume --save saved
cmp saved wanted || complain "resumed on the host: other weights"
train device 2 --init wanted --save again
train host 2 --init wanted --save saved
cmp saved again || complain "--init and two updates: other weights"
exit $failed
