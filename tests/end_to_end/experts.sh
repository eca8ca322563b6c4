# Mixtures of experts under every schedule: every plan gives the same bytes, whatever the number of threads; the shards of a
# group give the same numbers, except for rounding of sums; a file of one tensor for each expert gives what a file of stacked
# ones does.   experts.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0

# make NAME RANKS OPTIONS...: compiles for microbatches of two samples and trains.
make() {
  name=$1 ranks=$2
  shift 2
  build "$name" -n "$ranks" --microbatch 2 -D n_layer=3 -D n_head=4 -D n_kv_head=2 -D n_embd=32 -D hidden=24 -D n_expert=5 \
    -D n_ctx=16 -D vocab_size=128 -D batch=8 -D clip_norm=0.5 -D delay_correction=none "$@" "$top/models/mixtral_mini.pdm" &&
    train_tiny "$ranks" "$name"
}

make flush 1 --schedule flush
for stages in 2 4; do
  make "flush$stages" "$stages" --stages "$stages" --schedule flush && same flush "flush$stages"
done
OMP_NUM_THREADS=3 train_tiny 2 flush2 && same flush flush2
make again 2 --stages 2 --schedule flush --recompute on && same flush again
make gpipe 2 --stages 2 --schedule gpipe && same flush gpipe
make sequential 3 --stages 3 --schedule sequential && same flush sequential
make zb_h1 2 --stages 2 --schedule zb_h1 && same flush zb_h1
make interleaved 2 --stages 2 --schedule interleaved -D chunks=2 && same flush interleaved
make spilled 1 --schedule spilled && same flush spilled
make 2bw 1 --schedule 2bw
make 2bw3 3 --stages 3 --schedule 2bw && same 2bw 2bw3
make pipedream 2 --stages 2 --schedule pipedream -D batch=2 -D clip_norm=0
make replicas 2 --stages 1 --replicas 2 --schedule flush
make shards 2 --stages 1 --replicas 2 --schedule flush --shard-optimizer && same replicas shards
make muon 1 --schedule flush -D "optimizer=muon(lr = 0.01)"
make muon2 2 --stages 2 --schedule flush -D "optimizer=muon(lr = 0.01)" && same muon muon2
"$pdc" -d e -fsyntax-only -D "optimizer=muon()" "$top/models/mixtral_mini.pdm" 2>&1 | grep -q "experts.down_proj.*hidden" ||
  complain "matrices of experts are not hidden"
make tensor 2 --tensor 2 --stages 1 --schedule flush
# A capacity is one of a sample, so the dropped choices do not depend on microbatches, stages or shards.
make bounded 1 --schedule flush -D capacity=0.8
make bounded2 2 --stages 2 --schedule flush -D capacity=0.8 --recompute on && same bounded bounded2
make bounded_whole 1 --schedule flush -D capacity=0.8 --microbatch 8
make bounded_tensor 2 --tensor 2 --stages 1 --schedule flush -D capacity=0.8

python3 - <<'PY' || complain "--tensor 2 or other microbatches are not what one rank is"
import json
logged = lambda path: [x for x in map(json.loads, open(path)) if "loss" in x]
for one, others in (("flush", ["tensor"]), ("bounded", ["bounded_whole", "bounded_tensor"])):
    for other in others:
        a, b = logged(one + ".jsonl"), logged(other + ".jsonl")
        worst = max(abs(x["loss"] - y["loss"]) / abs(x["loss"]) for x, y in zip(a, b))
        assert len(a) == len(b) == 12 and a[0]["loss"] != a[-1]["loss"] and worst < 1e-5, (other, worst)
        assert one == "flush" or all(0.05 < x["dropped"] < 0.9 and x["dropped"] == y["dropped"] for x, y in zip(a, b))
PY

# The weights again, with a tensor for each expert.
python3 - <<'PY'
import json, struct
raw = open("flush.safetensors", "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + n])
tensors, data = {}, b""
def add(name, shape, part):
    global data
    tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
    data += part
for name, t in head.items():
    if name == "__metadata__":
        continue
    part = raw[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]]
    names = {"gate_up_proj": ["w1", "w3"], "down_proj": ["w2"]}.get(name.rsplit(".", 1)[-1])
    if not names:
        add(name, t["shape"], part)
        continue
    experts, rows, columns = t["shape"]
    each = len(part) // experts // len(names)
    for i in range(experts * len(names)):
        to = "%s.%d.%s.weight" % (name.rsplit(".", 1)[0], i // len(names), names[i % len(names)])
        add(to, [rows // len(names), columns], part[i * each:(i + 1) * each])
text = json.dumps(tensors).encode()
text += b" " * (-len(text) % 8)
open("each.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
for name in flush flush2 tensor; do
  [ $name = flush ] && n=1 || n=2
  launch $n $name --data train.txt --token-type u8 --steps 0 --init each.safetensors --save same.safetensors 2>said.txt &&
    cmp same.safetensors flush.safetensors || { cat said.txt; complain "$name: other weights from a tensor for each expert"; }
  grep -q ignored said.txt && complain "$name: tensors are ignored"
done
exit $failed
