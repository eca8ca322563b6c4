# One stage and two give the same bytes, flush and 2BW, clipped and tied; written files read back.
. "$(dirname "$0")/common.sh"
data="--data x.npy t.npy --validation vx.npy vt.npy --validate-every 7 --quiet --peak 1e9"
for d in 0 1; do
  one $d $data --steps 40 --log one.jsonl --save one.safetensors || complain "one stage, delay $d"
  two $d $data --steps 40 --log two.jsonl --save two.safetensors || complain "two stages, delay $d"
  figures one.jsonl >one.figures
  figures two.jsonl >two.figures
  cmp one.figures two.figures || complain "delay $d: other figures on two stages"
  cmp one.safetensors two.safetensors || complain "delay $d: other weights on two stages"
  [ "$(grep -c '"loss"' two.jsonl)" = 40 ] || complain "delay $d: not 40 updates in the log"
  [ "$(grep -c validation_loss two.jsonl)" = 6 ] || complain "delay $d: not 6 validations in the log"
  grep -q '"step":35,"validation' two.jsonl || complain "delay $d: no validation after 35"
  cp two.figures figures.$d
  one $d $data --steps 40 --seed 2 --log seed.jsonl || complain "seed"
  figures seed.jsonl | cmp -s - one.figures && complain "delay $d: the seed changes nothing"
done
cmp -s figures.0 figures.1 && complain "a delay of one update changes nothing"

# Losses fall, the log is JSON, its lines are the documented ones.
python3 - <<'P' || complain "log"
import json
lines = [json.loads(line) for line in open("two.jsonl")]
start, end = lines[0], lines[-1]
steps = [line for line in lines if "loss" in line]
assert start["event"] == "start" and start["stages"] == 2 and start["schedule"] == "2bw" and start["plan"] == "sha256:21"
assert len(start["planned_peak_bytes"]) == 2 and start["microbatch"] == 2 and start["microbatches"] == 4
assert end["event"] == "end" and end["steps"] == 40 and len(end["peak_bytes"]) == 2 and min(end["peak_bytes"]) > 1 << 20
assert [s["step"] for s in steps] == list(range(1, 41))
assert set(steps[3]) == {"step", "loss", "grad_norm", "lr", "samples_per_s", "ms", "mfu"}
assert steps[-1]["loss"] < 0.7 * steps[0]["loss"]
validations = [line["validation_loss"] for line in lines if "validation_loss" in line]
assert validations[-1] < 0.8 * validations[0]
P

# Saved weights start a run exactly; --steps 0 copies them; other names of a transformer's file are found.
two 0 --steps 0 --init two.safetensors --save copy.safetensors --quiet || complain "--steps 0"
cmp two.safetensors copy.safetensors || complain "weights changed by reading and writing them"
one 0 --steps 0 --save fresh.safetensors --quiet || complain "--steps 0 with fresh weights"
cmp -s two.safetensors fresh.safetensors && complain "--init changes nothing"
python3 - <<'P' || complain "safetensors"
import json, struct
bytes_ = open("two.safetensors", "rb").read()
n = struct.unpack("<Q", bytes_[:8])[0]
header = json.loads(bytes_[8:8 + n])
assert header.pop("__metadata__") == {"format": "pt"}
assert list(header) == ["first", "shared", "middle", "last"]
assert header["last"] == {"dtype": "F32", "shape": [8], "data_offsets": [96, 128]} and len(bytes_) == 8 + n + 128
renamed = {"transformer." + k: v for k, v in header.items()}
renamed["transformer.mask"] = {"dtype": "U8", "shape": [0], "data_offsets": [128, 128]}
text = json.dumps(renamed).encode()
open("hf.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes_[8 + n:])
P
two 0 --steps 0 --init hf.safetensors --save back.safetensors 2>notes || complain "names with a prefix"
cmp two.safetensors back.safetensors || complain "weights differ under names with a prefix"
[ "$(grep -c "note: 'hf.safetensors' holds 1 tensor that the model does not have, ignored: 'transformer.mask'" notes)" = 1 ] ||
  complain "no note of the ignored tensor"

# Threads, emulation without data.
OMP_NUM_THREADS=2 two 1 $data --steps 40 --log threads.jsonl || complain "two threads"
figures threads.jsonl | cmp - figures.1 || complain "other figures with two threads"
two 1 --steps 5 --emulate --quiet --log emulated.jsonl || complain "--emulate without data"
# A training that ends and goes on is one training, on whatever number of stages.
for d in 0 1; do
  one $d $data --steps 40 --log whole.jsonl --save whole.safetensors || complain "whole run, delay $d"
  rm -rf state
  two $d $data --steps 25 --checkpoint state --checkpoint-every 10 --log part.jsonl || complain "first part, delay $d"
  rm state/step-25/shard-1-of-2.safetensors
  for stages in one two; do
    rm -rf again && cp -r state again && cp part.jsonl again.jsonl
    $stages $d $data --steps 40 --checkpoint again --resume --log again.jsonl --save again.safetensors ||
      complain "resuming, delay $d, $stages"
    cmp again.safetensors whole.safetensors || complain "delay $d: other weights after resuming on $stages"
    figures again.jsonl | grep '"loss"' | tail -20 >again.figures
    figures whole.jsonl | grep '"loss"' | tail -20 | cmp - again.figures || complain "delay $d: other figures after resuming"
    grep -q '"first_step":20' again.jsonl || complain "delay $d: an incomplete checkpoint is used"
  done
done
refused "--resume without a folder" "0 (stage 0): 'empty' does not exist: there is no checkpoint to resume" \
  two 0 $data --steps 3 --checkpoint empty --resume
[ -e empty ] && complain "--resume makes a folder"
two 0 $data --steps 3 --checkpoint empty --resume-or-start 2>notes || complain "--resume-or-start without a folder"
two 0 $data --steps 4 --checkpoint empty --resume-or-start --log gone_on.jsonl && grep -q '"first_step":3' gone_on.jsonl ||
  complain "--resume-or-start with a checkpoint"
two 0 $data --steps 5 --checkpoint empty --resume || complain "--resume"
exit $failed
