# Replicated stages: the bytes of one rank that adds gradients up in the replicas' order.
. "$(dirname "$0")/common.sh"
data="--data x.npy t.npy --validation vx.npy vt.npy --validate-every 7 --quiet --peak 1e9 --timeout 30"
for p in 2_0_12 2_1_12 2-2_0_12 2-2_1_12 3-1_0_12 3-1_1_12 1-2-1_0_12 1-2-1_1_12 1-3-1_0_12 1-3-1_1_12 \
         3-2-3_0_12 3-2-3_1_12 1-1-1_2_1 2-2_1_2 1-3_2_3 1-3-1_3_3; do
  reference $p $data --steps 15 --log one.jsonl --save one.safetensors || complain "$p: reference"
  plan $p $data --steps 15 --log all.jsonl --save all.safetensors || complain "$p"
  figures one.jsonl >one.figures
  figures all.jsonl >all.figures
  cmp one.figures all.figures || complain "$p: other figures than one rank"
  cmp one.safetensors all.safetensors || complain "$p: other weights than one rank"
  [ "$(grep -c '"loss"' all.jsonl)" = 15 ] || complain "$p: not 15 updates in the log"
  # A training that ends and goes on.
  rm -rf state
  plan $p $data --steps 9 --checkpoint state --checkpoint-every 4 --log part.jsonl || complain "$p: first part"
  rm state/step-9/shard-0-of-*
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
exit $failed
