# Replicated stages are bit-identical to one rank that adds gradients in the replicas' order.
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/../sample.sh"
data="--data x.npy t.npy --validation vx.npy vt.npy --validate-every 7 --quiet --peak 1e9 --timeout 300"
for p in 2_0_12 2_1_12 2-2_0_12 2-2_1_12 3-1_0_12 3-1_1_12 1-2-1_0_12 1-2-1_1_12 1-3-1_0_12 1-3-1_1_12 \
         3-2-3_0_12 3-2-3_1_12 1-1-1_2_1 2-2_1_2 1-3_2_3 1-3-1_3_3; do
  [ $p = 1-3-1_3_3 ] || taken || continue # the last one's log is looked at
  reference $p $data --steps 15 --log one.jsonl --save one.safetensors || complain "$p: reference"
  plan $p $data --steps 15 --log all.jsonl --save all.safetensors || complain "$p"
  figures one.jsonl >one.figures
  figures all.jsonl >all.figures
  cmp one.figures all.figures || complain "$p: other figures than one rank"
  cmp one.safetensors all.safetensors || complain "$p: other weights than one rank"
  [ "$(grep -c '"loss"' all.jsonl)" = 15 ] || complain "$p: not 15 updates in the log"
  # A training that ends and goes on, on the same ranks or on one.
  rm -rf state
  plan $p $data --steps 9 --checkpoint state --checkpoint-every 4 --log part.jsonl || complain "$p: first part"
  rm state/step-9/shard-0-of-*
  rm -rf state.one && cp -r state state.one
  reference $p $data --steps 15 --checkpoint state.one --resume --save again.safetensors ||
    complain "$p: resuming on one rank"
  cmp all.safetensors again.safetensors || complain "$p: other weights after resuming on one rank"
  plan $p $data --steps 15 --checkpoint state --resume --log part.jsonl --save again.safetensors ||
    complain "$p: resuming"
  cmp all.safetensors again.safetensors || complain "$p: other weights after resuming"
  figures part.jsonl | grep '"loss"' | tail -7 >part.figures
  grep '"loss"' all.figures | tail -7 | cmp - part.figures || complain "$p: other figures after resuming"
done
grep -q '"stages":3,"replicas":\[1,3,1\],' all.jsonl || complain "replicas in the log"
python3 - <<'P' || complain "figures by rank"
import json
lines = [json.loads(line) for line in open("all.jsonl")]
assert lines[0]["planned_peak_bytes"] == [1, 2, 3, 4, 5] and len(lines[-1]["peak_bytes"]) == 5
P
# Other stages, replicas and numbers of weight versions go on from a checkpoint, too.
rm -rf state
plan 2-2_0_12 $data --steps 3 --checkpoint state || complain "flush"
for p in 1-3-1_1_12 3-1_0_12 3-2-3_1_12 2_0_12; do
  cp -r state other
  plan $p $data --steps 5 --checkpoint other --resume --log other.jsonl || complain "$p goes on from 2-2_0_12"
  [ "$(grep -c '"loss"' other.jsonl)" = 2 ] || complain "$p: not two updates"
  rm -rf other other.jsonl
done
rm -rf state
plan 3-1_1_12 $data --steps 3 --checkpoint state || complain "2bw"
[ "$(ls state/step-3 | tr '\n' ' ')" = "manifest.json shard-0-of-2.safetensors shard-1-of-2.safetensors " ] ||
  complain "a checkpoint has not one shard a stage"

# --run makes a directory of all that a report needs.
echo "a plan" >given.json
PD_PLAN=given.json plan 2-2_1_12 $data --steps 3 --run made || complain "--run"
cmp given.json made/plan.json && [ "$(grep -c '"loss"' made/log.jsonl)" = 3 ] && python3 -m json.tool made/trace.json >trace ||
  complain "--run does not leave log, trace and plan"
exit $failed
