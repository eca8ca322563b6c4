#!/bin/sh
# What emitted CUDA programs do besides training, on tests/cuda/host:  programs.sh PDC CASE [PRECISION]
# Weights in and out, checkpoints, validation, traces, --emulate, failures.
pdc=$1 precision=${3:-f32}
. "$(dirname "$0")/../../launch.sh"
level=-O0
seq 1 2000 >text.txt
small="-D n_layer=1 -D n_head=2 -D n_embd=16 -D n_ctx=16 -D vocab_size=64 -D batch=2 -D lr_schedule=constant"

# model DIR N OPTIONS...: gpt_mini, or the model $of, small, on N ranks.
model() {
  dir=$1 ranks=$2
  shift 2
  "$pdc" --target cuda --precision $precision -S -n "$ranks" --stages "$ranks" --microbatch 1 $small "$@" \
    -o "$dir" "${of:-$top/models/gpt_mini.pdm}" >build.log 2>&1 &&
    sh "$(dirname "$pdc")/tests/cuda/host/compile" "$dir" >>build.log 2>&1 && return
  head -n 30 build.log >&2
  complain "$dir is not built"
  exit 1
}

# says WORDS OPTIONS...: a launch of one rank that fails with these words.
says() {
  words=$1
  shift
  launch 1 model --data text.txt --steps 4 --timeout 30 "$@" >said 2>&1 && complain "no error: $words"
  grep -q "$words" said || { complain "not said: $words"; head -n 3 said >&2; }
}

# A training that is interrupted after 3 updates and one that is not leave the same bytes, and the saved weights are
# what a later run starts from. In bf16 the files hold masters, and the C target goes on from them.
checkpoint() {
  model model 2 --schedule 2bw
  CUDA_HOST_SEED=1 launch 2 model --data text.txt --steps 5 --log whole.jsonl --save whole.st || complain "5 updates"
  CUDA_HOST_SEED=2 launch 2 model --data text.txt --steps 3 --checkpoint dir --log parts.jsonl || complain "3 updates"
  CUDA_HOST_SEED=3 launch 2 model --data text.txt --steps 5 --checkpoint dir --resume --log parts.jsonl \
    --save parts.st || complain "2 more updates"
  cmp whole.st parts.st || complain "weights after an interruption are others"
  [ "$(figures whole.jsonl)" = "$(figures parts.jsonl)" ] || complain "losses after an interruption are others"
  launch 2 model --data text.txt --steps 0 --init whole.st --save again.st || complain "--init, --save"
  cmp whole.st again.st || complain "weights are not saved as they were loaded"
  "$pdc" -n 1 --stages 1 --microbatch 1 $small -o c "$top/models/gpt_mini.pdm" || complain "C"
  launch 1 c --data text.txt --steps 6 --checkpoint dir --resume --log c.jsonl || complain "C does not go on"
  launch 2 model --data text.txt --steps 6 --log on.jsonl || complain "6 updates"
  for log in on c; do tail -n 2 $log.jsonl | sed -n 's/.*"step":6,"loss":\([0-9.]*\).*/\1/p'; done | paste -s |
    awk '{ d = $1 / $2 - 1; exit !(d < 1e-3 && d > -1e-3) }' || complain "C goes on from other weights"
}

# Validation changes no bit of training, and its loss is the C target's.
validation() {
  head -c 200 text.txt >held_out.txt
  model model 1 --schedule flush
  "$pdc" -n 1 --stages 1 --microbatch 1 --schedule flush $small -o c "$top/models/gpt_mini.pdm" || complain "C"
  for dir in model c; do
    launch 1 $dir --data text.txt --validation held_out.txt --validate-every 2 --steps 4 --log $dir.jsonl \
      --save $dir.st || complain "$dir does not validate"
    sed -n 's/.*"validation_loss":\([0-9.]*\).*/\1/p' $dir.jsonl >$dir.losses
  done
  paste model.losses c.losses | awk '{ d = $1 / $2 - 1; near += d < 1e-4 && d > -1e-4 } END { exit near != 2 }' ||
    complain "validation losses differ from C's"
  launch 1 model --data text.txt --steps 4 --save plain.st || complain "training without validation"
  cmp model.st plain.st || complain "a validation changed the weights"
}

# Passes in a trace end when the device has ended them; --emulate runs no kernels, and its arena is finite.
trace() {
  model model 2 --schedule 2bw
  launch 2 model --data text.txt --steps 3 --trace trace.json --log run.jsonl || complain "--trace"
  python3 - <<'END' || complain "the trace is not whole"
import json
events = [e for e in json.load(open("trace.json"))["traceEvents"] if e["ph"] == "X"]
of = lambda kind: [e for e in events if e["cat"] == kind]
assert len(of("forward")) == len(of("backward")) == 12 and len(of("update")) == 6
assert all(e["dur"] > 0 for e in of("forward") + of("backward"))
for a, b in ((a, b) for a in of("forward") for b in of("backward") if a["pid"] == b["pid"]):
    assert a["ts"] + a["dur"] <= b["ts"] + 1e-3 or b["ts"] + b["dur"] <= a["ts"] + 1e-3
END
  grep -q '"device":"[^"]' run.jsonl || complain "the log does not name the device"
  sed -n 's/.*"peak_bytes":\[\([0-9]*\),\([0-9]*\)\],"planned_peak_bytes":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2 \3 \4/p' \
    run.jsonl | awk '{ exit !(NF == 4 && $1 >= $3 && $2 >= $4) }' || complain "less memory was taken than planned"
  launch 2 model --steps 3 --emulate --log emulated.jsonl || complain "--emulate"
  [ "$(grep -c '"step"' emulated.jsonl)" = 3 ] || complain "--emulate logs no updates"
}

# A profiler sees passes, updates and messages by the names that a trace has: those of each rank, each once. Receives
# have a range where they are posted and one where they are awaited; what a validation sends is not the training's.
profile() {
  head -c 200 text.txt >held_out.txt
  model model 2 --schedule zb_h1
  CUDA_HOST_PROFILE=$PWD/ranges launch 2 model --data text.txt --validation held_out.txt --steps 3 \
    --trace trace.json || complain "a run with a profiler"
  python3 - <<'END' || complain "ranges are not those of the trace"
import json, collections
events = [e for e in json.load(open("trace.json"))["traceEvents"] if e["ph"] == "X"]
once = lambda name: name.split()[0] in ("F", "B", "W", "R", "update", "send")
for rank in 0, 1:
    ranges = [line.strip().split(" ", 1) for line in open("ranges.%d" % rank)]
    assert all(domain == "pdc" for domain, _ in ranges), ranges[0]
    names = [name for _, name in ranges]
    mine = [e["name"] for e in events if e["pid"] == rank and not e["name"].split()[0] in ("reduce", "exchange", "gather",
            "validate", "checkpoint", "audit", "wait")]
    assert collections.Counter(filter(once, names)) == collections.Counter(filter(once, mine)), rank
    received = {name for name in names if name.startswith("receive")}
    assert received == {name for name in mine if name.startswith("receive")} and len(received) == 6, received
    assert any(name.startswith("validate ") for name in names)
END
  CUDA_HOST_PROFILE=$PWD/audited launch 2 model --data text.txt --steps 3 --audit 2 || complain "--audit with a profiler"
  grep -q "never ends" ranges.? audited.? && complain "a range never ends"
  [ "$(grep -c "^pdc F 3$" audited.0)" = 2 ] || complain "a pass that is done twice has one range"
}

# One rank's norm stays on the device (find_scale), and the update is that of two stages, whose host knows it; so are what is
# logged, and what is said of a gradient that is not finite, before its update is logged or in a checkpoint.
clipping() {
  for clip in 0.01 0.5 1e9; do
    model one 1 --schedule flush -D clip_norm=$clip
    model two 2 --schedule flush -D clip_norm=$clip
    for seed in 1 2 3; do
      CUDA_HOST_SEED=$seed CUDA_HOST_TRACE=1 launch 1 one --data text.txt --steps 6 --log one.jsonl --save one.st \
        2>trace || complain "one rank that clips by $clip"
      grep -q find_scale trace || complain "the host finds the scale of one rank"
    done
    CUDA_HOST_TRACE=1 launch 2 two --data text.txt --steps 6 --log two.jsonl --save two.st 2>trace ||
      complain "two ranks that clip by $clip"
    ! grep -q find_scale trace || complain "a device finds the scale of two ranks"
    cmp one.st two.st || complain "clipped by $clip: weights"
    [ "$(figures one.jsonl)" = "$(figures two.jsonl)" ] || complain "clipped by $clip: figures"
    cp one.st clipped_by_$clip.st
  done
  cmp -s clipped_by_0.5.st clipped_by_1e9.st && complain "nothing was clipped"
  cat >root.pdm <<'END'
use nn;
model root() {
  input tokens[4] : token(64);
  param w[4] = zeros;
  loss sqrt(embedding(tokens, 64, 4) * w * w);
}
train root { batch = 2; optimizer = adamw(lr = 0.1); clip_norm = 1; pipeline = flush; }
END
  target=cuda
  build root -n 1 --microbatch 1 root.pdm
  launch 1 root --data text.txt --steps 3 --log root.jsonl --checkpoint kept --checkpoint-every 1 2>said &&
    complain "a gradient that is not finite: exit status 0"
  grep -q "step 1: the gradient of 'w' is non-finite" said || { cat said >&2; complain "what is not finite is not said"; }
  ! grep -q '"step"' root.jsonl || complain "an update by what is not finite is logged"
  [ -z "$(ls -d kept/step-* 2>/dev/null)" ] || complain "a checkpoint has it"
}

# --device, and the processors beside the device that a rank gets, which stand in a folder in the place of /sys.
devices() {
  model model 1 --schedule flush
  export CUDA_HOST_DEVICES=3
  says "rank 0 (stage 0): --device 3: CUDA numbers the GPUs of .* from 0 to 2$" --device 3
  CUDA_VISIBLE_DEVICES=0,2,4 says "rank 0 (stage 0): --device 7: CUDA numbers the GPUs of .* from 0 to 2 (CUDA_VISIBLE_DEVICES=0,2,4)" --device 7
  says "rank 0 (stage 0): --device needs a whole number, not '-1'" --device -1
  mkdir -p sys/devices/system/cpu
  cpus=$(taskset -cp $$ | sed 's/.*: //')
  echo "$cpus" >sys/devices/system/cpu/online
  first=${cpus%%[,-]*}
  for device in 1 2; do mkdir -p sys/bus/pci/devices/0000:0$device:00.0; done
  echo "$first" >sys/bus/pci/devices/0000:02:00.0/local_cpulist
  echo "$cpus" >sys/bus/pci/devices/0000:01:00.0/local_cpulist
  export CUDA_HOST_SYSFS=$PWD/sys
  launch 1 model --data text.txt --steps 1 --device 1 --log log.jsonl || complain "--device 1"
  launch 1 model --data text.txt --steps 1 --device=0 --log first.jsonl || complain "--device=0"
  if [ "$first" != "$cpus" ]; then
    grep -q "\"processors\":\"$first\",\"bound_by\":\"pd\"" log.jsonl || complain "not beside device 1: $(head -n 1 log.jsonl)"
    mpirun="taskset -c $first $mpirun" launch 1 model --data text.txt --steps 1 --device 1 --log bound.jsonl || complain "bound"
    grep -q "\"processors\":\"$first\",\"bound_by\":\"launcher\"" bound.jsonl ||
      complain "what the launcher bound: $(head -n 1 bound.jsonl)"
  fi
  grep -q bound_by first.jsonl && complain "bound to all processors: $(head -n 1 first.jsonl)"
  "$pdc" -n 1 --stages 1 --microbatch 1 --schedule flush $small -o c "$top/models/gpt_mini.pdm" || complain "C"
  launch 1 c --data text.txt --steps 1 --device 0 2>said && complain "--device on processors"
  grep -q -e "--device 0 has no effect: this program runs on the CPU. help: build for GPUs with pdc --target cuda" said || { cat said >&2; complain "--device on processors"; }
}

failures() {
  model model 1 --schedule flush
  CUDA_HOST_DEVICES=0 says "rank 0 (stage 0): CUDA finds no GPU on this machine: no CUDA-capable device"
  CUDA_HOST_MEMORY=100000 says "cannot get the .* MiB that the plan gives this stage: .* has 0.1 MiB and .* free"
  launch 1 model --data text.txt --steps 0 --save start.st || complain "--save"
  spoil start.st spoilt.st
  spoilt="step 1: the loss of microbatch 1 is non-finite; first non-finite tensor: parameter 'wpe"
  says "$spoilt" --init spoilt.st
  sed '/clip_norm/d' "$top/models/gpt_mini.pdm" >unclipped.pdm
  of=$PWD/unclipped.pdm model model 1 --schedule flush
  says "$spoilt" --init spoilt.st
}

# spoil FROM TO: a safetensors file whose first tensor of positions begins with a NaN.
spoil() {
  python3 - "$1" "$2" <<'END'
import json, struct, sys
file = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", file[:8])[0]
header = json.loads(file[8:8 + n])
name = next(k for k in header if k.startswith("wpe"))
at = 8 + n + header[name]["data_offsets"][0]
file[at:at + 4] = struct.pack("<f", float("nan"))
open(sys.argv[2], "wb").write(file)
END
}

$2
exit $failed
