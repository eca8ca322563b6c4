# Initial weights from several files, indices and shards of checkpoints, and their errors.
. "$(dirname "$0")/common.sh"
one 0 --steps 0 --save whole.safetensors --quiet || exit 1
two 1 --data x.npy t.npy --steps 5 --checkpoint state --save fifth.safetensors --quiet --peak 1 || exit 1
mkdir split
python3 - <<'P' || exit 1
import json, struct

def load(path):
    raw = open(path, "rb").read()
    (n,) = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    return {k: raw[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]] for k, v in head.items() if k != "__metadata__"}

def save(path, tensors):
    head, at = {}, 0
    for name, data in tensors.items():
        head[name] = {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))

def index(path, names):
    json.dump({"metadata": {}, "weight_map": names}, open(path, "w"))

w = load("whole.safetensors")
parts = {"split/a": ("last", "first"), "split/b": ("shared",), "split/c": ("middle",), "again": ("last",)}
for path, names in parts.items():
    save(path + ".safetensors", {n: w[n] for n in names})
save("foreign.safetensors", {"net.block.0.first.w": w["first"], "x.mid.y.dle": w["middle"], "tail": w["last"], "shared": w["shared"]})
save("head.safetensors", {**w, "last": bytes(12)})
save("ones.safetensors", {**w, "first": w["last"], "other": bytes(4)})
names = {"first": "a.safetensors", "shared": "b.safetensors", "middle": "c.safetensors", "last": "a.safetensors"}
index("split/model.safetensors.index.json", names)
index("split/absent.index.json", {**names, "other": "b.safetensors"})
index("split/gone.index.json", {**names, "other": "none.safetensors"})
index("split/outside.index.json", {**names, "last": "../again.safetensors"})
open("split/cut.index.json", "w").write('{"weight_map": {"first": ')
P

# started NAME WEIGHTS OPTIONS...: what two stages read is what they save.
started() {
  name=$1 weights=$2
  shift 2
  two 1 --steps 0 --quiet --save read.safetensors "$@" && cmp "$weights" read.safetensors || complain "$name"
  rm -f read.safetensors
}
started "three files" whole.safetensors --init split/c.safetensors split/a.safetensors split/b.safetensors
started "options that add up" whole.safetensors --init split/c.safetensors --init split/a.safetensors split/b.safetensors
started "an index" whole.safetensors --init split/model.safetensors.index.json
started "a folder with an index" whole.safetensors --init split
started "an index here" whole.safetensors --init ./split/../split/model.safetensors.index.json
started "a checkpoint's step" fifth.safetensors --init state/step-5
cp -r state/step-5 left # a launch of three stages was killed while it wrote the step
cp left/shard-0-of-2.safetensors left/shard-2-of-3.safetensors
started "a step that is whole beside one that is not" fifth.safetensors --init left
started "a checkpoint's shards" fifth.safetensors --init state/step-5/shard-1-of-2.safetensors state/step-5/shard-0-of-2.safetensors
started "a file over itself" whole.safetensors --init whole.safetensors --save read.safetensors
mkdir named && cp whole.safetensors named/model.safetensors
started "a folder with a file" whole.safetensors --init named

# config NAME JSON WARNING: of --init's folder with this config.json; no warning where it is empty.
config() {
  printf '%s' "$2" >named/config.json
  one 0 --steps 0 --quiet --save read.safetensors --init named 2>err && cmp whole.safetensors read.safetensors || complain "$1"
  [ "$(cat err)" = "${3:+pd: warning: 'named/config.json' $3}" ] || complain "$1: $(cat err)"
}
other="describes a different computation than the model:"
llama='"model_type": "llama", "num_attention_heads": 8, "head_dim": 32, "rms_norm_eps": 1e-5, "hidden_act": "silu"'
config "the same" "{$llama, \"rope_theta\": 10000.0, \"rope_scaling\": null, \"tie_word_embeddings\": false, \"hidden_size\": 256}"
config "the same in other words" '{"architectures": ["X"], "n_head": 8, "activation_function": "swish", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}'
config "no config of a model" '{"rope_theta": 500000}'
config "unknown values" "{\"model_type\": \"x\", \"hidden_act\": \"new\", \"rms_norm_eps\": \"1\", \"head_dim\": null, \"rope_scaling\": {\"type\": \"new\", \"factor\": 2}}"
config "rope_theta" "{$llama, \"rope_theta\": 500000}" "$other rope_theta is 500000, but the model has 10000"
config "rope_parameters" "{$llama, \"rope_parameters\": {\"rope_theta\": 500000}}" "$other rope_theta is 500000, but the model has 10000"
config "every field" '{"model_type": "x", "n_head": 4, "head_dim": 64, "rms_norm_eps": 1e-6, "hidden_act": "gelu_new", "tie_word_embeddings": true}' \
  "$other n_head is 4, but the model has 8; head_dim is 64, but the model has 32; rms_norm_eps is 1e-06, but the model has 1e-05; hidden_act is gelu_new, but the model has silu; tie_word_embeddings is true, but the model has false"
config "layer norms" '{"model_type": "x", "layer_norm_epsilon": 1e-5}' "$other it has layer_norm_epsilon, but the model has RMS norms"
config "linear scaling" "{$llama, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}" \
  "$other rope_scaling of type linear gives rotary frequency 1 of 16 the value 0.25, but the model has 1"
llama3=$(python3 - <<'P'
import math # as _compute_llama3_parameters of transformers has it
for i in range(16):
    plain = 1e4 ** (-2 * i / 32)
    length, low, high = 2 * math.pi / plain, 256 / 1.0, 256 / 4.0
    smooth = (256 / length - 1) / (4 - 1)
    scaled = plain / 8 if length > low else plain if length < high else (1 - smooth) * plain / 8 + smooth * plain
    if scaled != plain:
        print(f"{i + 1} of 16 the value {scaled:.5g}, but the model has {plain:.5g}")
        break
P
)
config "scaling of Llama 3.1" "{$llama, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, \"original_max_position_embeddings\": 256}}" \
  "$other rope_scaling of type llama3 gives rotary frequency $llama3"
config "a damaged file" '{"model_type": ' "is not JSON, or it is cut short: the file is not compared with the model"
rm named/config.json read.safetensors

# A training that starts from a checkpoint's weights is a new one: from the first update, without moments.
two 1 --data x.npy t.npy --steps 3 --init fifth.safetensors --log file.log --quiet --peak 1 || complain "from a file"
two 1 --data x.npy t.npy --steps 3 --init state/step-5 --log shards.log --quiet --peak 1 || complain "from shards"
figures file.log >file.figures
figures shards.log | cmp - file.figures || complain "a checkpoint's weights train otherwise than the same from a file"

wrong() {
  refused "$1" "$2" two 1 --steps 0 --quiet --save read.safetensors $3
  [ ! -e read.safetensors ] || complain "$1: weights were written"
}
wrong "a tensor in two files" "0 (stage 0): tensor 'last' is in two files: 'whole.safetensors' and 'again.safetensors'" \
  "--init whole.safetensors again.safetensors"
wrong "a file twice" "0 (stage 0): tensor 'first' is in two files: 'whole.safetensors' and 'whole.safetensors'" \
  "--init whole.safetensors --init whole.safetensors"
wrong "missing tensors" "0 (stage 0): 'split/a.safetensors' holds no tensors 'shared', 'middle'. help: let parameters start fresh with --init-partial PATTERN$" "--init split/a.safetensors"
wrong "a missing tensor" "0 (stage 0): the 2 --init files hold no tensor 'middle'. help: .*--init-" "--init split/a.safetensors split/b.safetensors"
wrong "a missing shard's tensors" "0 (stage 0): 'state/step-5/shard-0-of-2.safetensors' holds no tensors 'middle', 'last'" \
  "--init state/step-5/shard-0-of-2.safetensors"
wrong "a tensor absent from its file" \
  "0 (stage 0): 'split/absent.index.json': tensor 'other' is not in 'split/b.safetensors', where the index places it" \
  "--init split/absent.index.json"
wrong "a file that an index names" \
  "0 (stage 0): 'split/gone.index.json' names 'none.safetensors': cannot read 'split/none.safetensors': No such file" \
  "--init split/gone.index.json"
wrong "a file elsewhere" "0 (stage 0): cannot read 'split/outside.index.json': the file that it names for tensor 'last' is not in the same directory" \
  "--init split/outside.index.json"
wrong "half an index" "0 (stage 0): cannot read 'split/cut.index.json': it is not JSON, or it is cut short" "--init split/cut.index.json"
wrong "a folder of something else" "0 (stage 0): the directory 'state' holds no model.safetensors or pytorch_model.bin, no index of one, and no shards of" "--init state"

# ---- names ---------------------------------------------------------------------------------------------------
started "renamed tensors" whole.safetensors --init foreign.safetensors --rename 'net.block.0.*.w=*' 'x.*.y.*=**' --rename tail=last
wrong "other wildcards" "0 (stage 0): --rename 'net.block.?.\\*.w=\\*': both names need the same wildcards in the same order" \
  "--init foreign.safetensors --rename net.block.?.*.w=*"
wrong "a rename of nothing" "0 (stage 0): --rename 'lost=last' renames no tensor" "--init whole.safetensors --rename lost=last"
wrong "a rename behind another one" "0 (stage 0): --rename 'las?=firs?' renames no tensor" \
  "--init whole.safetensors --rename last=last las?=firs?"
wrong "two tensors of one name" "0 (stage 0): --rename gives 'first' of 'whole.safetensors' and 'last' of 'whole.safetensors' the same name 'first'" \
  "--init whole.safetensors --rename last=first"
wrong "half a rename" "0 (stage 0): --rename needs OLD=NEW, not 'last='" "--init whole.safetensors --rename last="
wrong "a rename without files" "0 (stage 0): --rename needs --init PATH" "--rename a=b"

# Names behind a prefix, as wrappers of models write them.
python3 - <<'P'
raw = open("whole.safetensors", "rb").read()
n = int.from_bytes(raw[:8], "little")
header = raw[8:8 + n]
for name in (b"first", b"shared", b"middle", b"last"):
    header = header.replace(b'"%s"' % name, b'"model.%s"' % name)
open("prefixed.safetensors", "wb").write(len(header).to_bytes(8, "little") + header + raw[8 + n:])
P
wrong "a prefix" "0 (stage 0): 'prefixed.safetensors' holds no tensors 'first', 'shared', 'middle', 'last'. help: --rename 'model.\*=\*' finds 4 of them" \
  "--init prefixed.safetensors"
started "without the prefix" whole.safetensors --init prefixed.safetensors --rename 'model.*=*'

# ---- fresh parameters ------------------------------------------------------------------------------------------
# fresh NAME WANTED WEIGHTS OPTIONS...: rank 0 notes which parameters start fresh, and they are those of a run without --init.
fresh() {
  name=$1 wanted=$2 weights=$3
  shift 3
  two 1 --steps 0 --save read.safetensors "$@" >out 2>err && cmp "$weights" read.safetensors || complain "$name"
  grep -qx "pd: note: $wanted" err || complain "$name: expected '$wanted', not: $(cat err)"
  rm -f read.safetensors
}
fresh "missing parameters" "2 parameters start fresh: 'shared', 'middle'" whole.safetensors --init split/a.safetensors --init-partial middle shared
fresh "by one pattern" "2 parameters start fresh: 'shared', 'middle'" whole.safetensors --init split/a.safetensors --init-partial '*'
fresh "an alternative" "1 parameter starts fresh: 'middle'" whole.safetensors --init split/a.safetensors split/b.safetensors \
  --init-partial 'first | mid*'
fresh "another shape" "1 parameter starts fresh: 'last' (of shape \[3\] in the file)" whole.safetensors --init head.safetensors --init-partial last
fresh "nothing fresh" "no parameter starts fresh: the --init files hold all" whole.safetensors --init split --init-partial last
two 1 --steps 0 --seed 2 --save second.safetensors --quiet || complain "another seed"
two 1 --steps 0 --seed 2 --init split/a.safetensors --init-partial shared middle --save mixed.safetensors --quiet || complain "fresh by seed"
python3 - <<'P' || complain "fresh parameters are not those of the seed"
def tensors(path):
    raw = open(path, "rb").read()
    return [raw[-128 + 32 * i:len(raw) - 96 + 32 * i] for i in range(4)]

first, second, mixed = (tensors(f + ".safetensors") for f in ("whole", "second", "mixed"))
assert mixed == [first[0], second[1], second[2], first[3]] and first[1] != second[1]
P
wrong "a pattern for other parameters" "0 (stage 0): 'split/a.safetensors' holds no tensor 'middle'. help: .*--init-partial" \
  "--init split/a.safetensors --init-partial shared"
wrong "another shape without a pattern" \
  "1 (stage 1): 'head.safetensors': tensor 'last' has shape \[3\], but the model needs \[8\]. help: let parameters start fresh with --init-partial PATTERN" \
  "--init head.safetensors --init-partial first"
wrong "a pattern without parameters" "0 (stage 0): --init-partial 'lost' matches no parameter of the model" \
  "--init whole.safetensors --init-partial last lost"
wrong "a pattern without files" "0 (stage 0): --init-partial needs --init PATH" "--init-partial last"
refused "other patterns" "0 (stage 0): the options of rank 1 differ from the options of rank 0" \
  $mpirun -n 1 "$programs/chain_2_0_1" --steps 0 --init split --init-partial last : \
  -n 1 "$programs/chain_2_1_1" --steps 0 --init split --init-partial first

refused "a log over a file of an index" "0 (stage 0): --log 'split/b.safetensors' would overwrite an input file" \
  two 1 --steps 0 --init split --log split/b.safetensors
# A step's folder is verified by its manifest.
cp -r state/step-5 damaged
printf '\377' | dd of=damaged/shard-1-of-2.safetensors bs=1 seek=$(($(stat -c %s damaged/shard-1-of-2.safetensors) - 1)) conv=notrunc 2>dd
wrong "a damaged step" "1 (stage 1): 'damaged/shard-1-of-2.safetensors': its tensors are damaged" \
  "--init damaged"
cp -r state/step-5 step-6
wrong "a renamed step" "0 (stage 0): 'step-6': its manifest is of step 5: the directory was renamed" "--init step-6"
cp -r state/step-5 damaged/step-5
sed -i 's/"samples"/"simples"/' damaged/step-5/manifest.json
wrong "a damaged manifest" "0 (stage 0): 'damaged/step-5/manifest.json': it is damaged: its checksum does not match" "--init damaged/step-5"
rm damaged/step-5/manifest.json
wrong "a step that was not finished" "0 (stage 0): the step in 'damaged/step-5' was not finished: it lacks manifest.json" \
  "--init damaged/step-5"
rm state/step-5/shard-1-of-2.safetensors
wrong "a step without a shard" "0 (stage 0): cannot read 'state/step-5/shard-1-of-2.safetensors': No such file" "--init state/step-5"
exit $failed
