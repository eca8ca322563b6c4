# Compiled models on images and on pairs of sentences, from files made here:  data.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
python3 - <<'P' || exit 1
import random, struct

draw = random.Random(1)

def idx(path, shape, data):
    with open(path, "wb") as out:
        out.write(bytes([0, 0, 8, len(shape)]) + struct.pack(">%dI" % len(shape), *shape) + bytes(data))

def image(label):
    """8 x 8: a bar whose direction and place are the label's, on noise."""
    pixels = [draw.randrange(64) for _ in range(64)]
    for i in range(8):
        at = 2 + 3 * (label // 2)
        pixels[8 * at + i if label % 2 else 8 * i + at] = 255 - draw.randrange(64)
    return pixels

for name, n in (("train", 96), ("t10k", 24)):
    labels = [i % 4 for i in range(n)]
    idx(name + "-images-idx3-ubyte", (n, 8, 8), [p for label in labels for p in image(label)])
    idx(name + "-labels-idx1-ubyte", (n,), labels)
with open("data_batch_1.bin", "wb") as out:
    for i in range(16):
        out.write(bytes([i % 10]) + bytes(draw.randrange(256) for _ in range(3072)))
words = ["one", "two", "six", "ten"]
lines = [[draw.choice(words) for _ in range(draw.randrange(1, 4))] for _ in range(40)]
with open("from.txt", "w") as out:
    out.writelines(" ".join(line) + "\n" for line in lines)
with open("to.txt", "w") as out:
    out.writelines(" ".join(reversed(line)) + "\n" for line in lines)
for name, flip in (("from.ids", False), ("to.ids", True)):
    with open(name, "w") as out:
        for line in lines:
            ids = [3 + words.index(word) for word in line]
            out.write(" ".join(map(str, (ids[::-1] if flip else ids) + [2])) + "\n")
P
head -c 500 train-images-idx3-ubyte >cut-ubyte
# What the idx files hold as numpy's archives, which are zip files with sizes of 64 bits; and broken ones. A text as
# numbers of two bytes without a header, nanoGPT's.
python3 - <<'P' || exit 1
import struct, zipfile

def npy(code, shape, data):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (code, shape)
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117).encode() + b"\n" + data

def npz(path, how, **arrays):
    with zipfile.ZipFile(path, "w", how) as out:
        for name, array in arrays.items():
            with out.open(name + ".npy", "w", force_zip64=True) as member:
                member.write(array)

def digits(first, last):
    pixels = open("train-images-idx3-ubyte", "rb").read()[16 + 64 * first:16 + 64 * last]
    labels = open("train-labels-idx1-ubyte", "rb").read()[8 + first:8 + last]
    n = last - first
    image = npy("<f4", (n, 8, 8), struct.pack("<%df" % (64 * n), *(p / 255 for p in pixels)))
    return {"image": image, "label": npy("|u1", (n,), labels)}

npz("stored.npz", zipfile.ZIP_STORED, **digits(0, 96))
npz("packed1.npz", zipfile.ZIP_DEFLATED, **digits(0, 40), notes=npy("<f4", (1,), bytes(4)))
npz("packed2.npz", zipfile.ZIP_STORED, **digits(40, 96))
open("label.npy", "wb").write(digits(0, 96)["label"])
npz("label.npz", zipfile.ZIP_DEFLATED, arr_0=digits(0, 96)["label"])
npz("uneven.npz", zipfile.ZIP_STORED, image=digits(0, 96)["image"], label=digits(0, 95)["label"])
npz("other.npz", zipfile.ZIP_STORED, a=b"", b=b"")
npz("bzip2.npz", zipfile.ZIP_BZIP2, **digits(0, 96))
whole = open("packed1.npz", "rb").read()
open("cut.npz", "wb").write(whole[:-30])
open("damaged.npz", "wb").write(whole[:400] + bytes([whole[400] ^ 16]) + whole[401:])
text = open("from.txt", "rb").read()
open("from.bin", "wb").write(struct.pack("<%dH" % len(text), *text))
P
head -n 39 to.txt >fewer.txt

# classifier NAME CHANNELS SIDE CLASSES: a model of images.
classifier() {
  cat >"$1.pdm" <<P
use nn;
model $1(channels = $2, side = $3) {
  input  image[channels, side, side];
  target label[1] : token($4);
  x = reshape(image, [1, channels * side * side]);
  x = tanh(fc1: linear(x, 24));
  x = tanh(fc2: linear(x, 24));
  loss cross_entropy(out: linear(x, $4), label);
}
train $1 { batch = 8; optimizer = adamw(lr = 1e-2); }
P
}
classifier digits 1 8 4
classifier cifar 3 32 10
cat >pairs.pdm <<P
use nn;
model pairs(length = 12, width = 16) {
  input  source[length] : token(128);
  input  lengths[1]     : lengths(source);
  target next[length]   : token(128);
  input  before[length] : shifted(next, first = 1);
  target weight[length] : counted(next);
  x = wte: embedding(source, 128, width) + wpe: position_embedding(length, width);
  x = reshape(mix: linear(reshape(x, [1, length * width]), length * width), [length, width]);
  x = tanh(x + wbe: embedding(before, 128, width) + wle: embedding(lengths, length + 1, width));
  loss weight * cross_entropy(out: linear(x, 128), next);
}
train pairs { batch = 8; optimizer = adamw(lr = 1e-2); }
P
# 'masked' predicts what was corrupted; the loss of 'level' is the mean weight, 1.
cat >masked.pdm <<P
use nn;
model masked(length = 12, width = 16) {
  target labels[length] : token(128);
  input  tokens[length] : masked(labels, mask = 1, special = [0, 10]);
  input  types[length]  : segments(tokens, separator = 32);
  target weight[length] : chosen(tokens);
  x = wte: embedding(tokens, 128, width) + wse: embedding(types, 2, width) + wpe: position_embedding(length, width);
  x = tanh(reshape(mix: linear(reshape(x, [1, length * width]), length * width), [length, width]));
  loss weight * cross_entropy(out: linear(x, 128), labels);
}
train masked { batch = 8; optimizer = adamw(lr = 1e-2); }
P
cat >level.pdm <<P
model level(length = 12) {
  input  labels[length] : token(128);
  target weight[length] : counted(labels);
  param a[1] = ones;
  loss a * weight;
}
train level { batch = 16; optimizer = sgd(lr = 0); }
P

cat >windows.pdm <<P
use nn;
model windows(length = 8, width = 8) {
  input  tokens[length] : token(128);
  target next[length]   : token(128);
  loss cross_entropy(out: linear(wte: embedding(tokens, 128, width), 128), next);
}
train windows { batch = 4; optimizer = adamw(lr = 1e-2); }
P

# run N DIR OPTIONS...: leaves DIR.jsonl, DIR.figures, DIR.safetensors.
run() {
  n=$1 dir=$2
  shift 2
  launch "$n" "$dir" --log "$dir.jsonl" --save "$dir.safetensors" "$@" || { complain "$dir $*"; return 1; }
  figures "$dir.jsonl" >"$dir.figures"
}
# below FILE KEY MOST: the last figure of this name.
below() {
  last=$(grep -o "\"$2\":[^,}]*" "$1" | tail -n 1 | cut -d : -f 2)
  awk "BEGIN { exit !($last < $3) }" || complain "$1: the last $2 is $last, not below $3"
}
same() {
  cmp "$1.figures" "$2.figures" && cmp "$1.safetensors" "$2.safetensors" || complain "$3: other bytes"
}
# refused PATTERN COMMAND...: one message.
refused() {
  pattern=$1
  shift
  "$@" >out 2>err && complain "'$pattern': no failure"
  [ "$(grep -c '^pd: rank' err)" = 1 ] && grep -q "^pd: rank 0 (stage 0): $pattern" err ||
    { complain "expected '$pattern' alone in:"; cat err >&2; }
}

one="-n 1 --stages 1 --microbatch 2 --schedule flush" two="-n 2 --stages 2 --microbatch 2 --schedule flush"
build one $one digits.pdm && build two $two digits.pdm && build still $one -D "optimizer=sgd(lr = 0)" digits.pdm &&
  build cifar1 $one cifar.pdm && build cifar2 $two cifar.pdm && build pairs1 $one pairs.pdm &&
  build pairs2 $two pairs.pdm && build masked1 $one masked.pdm && build masked2 $two masked.pdm &&
  build masked3 -n 2 --stages 2 --recompute on --microbatch 2 --schedule flush masked.pdm &&
  build level $one level.pdm && build windows $one windows.pdm || exit 1
grep -qx "windows: run windows/train --data PATH --steps N" build.log || complain "how it is run: $(cat build.log)"
build "two ranks" $two windows.pdm && grep -qx "'two ranks': run .*mpirun.* -n 2 --bind-to none 'two ranks/train' --data PATH --steps N" build.log ||
  complain "how two ranks are run: $(cat build.log)"

# ---- MNIST's files ---------------------------------------------------------------------------------------
digits="--data train-images-idx3-ubyte train-labels-idx1-ubyte --validation t10k-images-idx3-ubyte t10k-labels-idx1-ubyte"
run 1 one $digits --steps 60 && run 2 two $digits --steps 60 && same one two images
below one.jsonl loss 0.2
below one.jsonl validation_loss 0.5
mv one.figures plain.figures
run 1 one --data label=train-labels-idx1-ubyte image=train-images-idx3-ubyte \
  --validation label=t10k-labels-idx1-ubyte image=t10k-images-idx3-ubyte --steps 60 && cmp one.figures plain.figures ||
  complain "files given by name"

# ---- archives --------------------------------------------------------------------------------------------
grep -v validation plain.figures >trained.figures
for files in stored.npz "packed1.npz packed2.npz" "label=label.npz image=stored.npz"; do
  run 1 one --data $files --steps 60 && cmp one.figures trained.figures || complain "archives: $files"
done
$mpirun -n 1 one/train --data packed1.npz --steps 1 --peak 1e9 >out 2>&1
grep -q "note: 'packed1.npz': the array 'notes' is ignored: no input or target has this name" out ||
  complain "an array that is not read: $(cat out)"
refused "'other.npz' has no array 'image', but a, b" launch 1 one --data other.npz --steps 1
refused "'label.npz' has no array 'image', but arr_0" launch 1 one --data label.npz --steps 1
refused "'uneven.npz' holds 95 samples of 'label', but 96 of 'image'" launch 1 one --data uneven.npz --steps 1
refused "'bzip2.npz': 'image' is packed by method 12: only stored and deflated" launch 1 one --data bzip2.npz --steps 1
refused "'cut.npz' is not a .npz archive, or is cut short" launch 1 one --data cut.npz --steps 1
refused "'damaged.npz' is damaged: 'image' cannot be unpacked" launch 1 one --data damaged.npz --steps 1
refused "'stored.npz' and the other files have several formats" launch 1 one --data stored.npz label.npy --steps 1

# ---- tokens without a header -----------------------------------------------------------------------------
run 1 windows --data from.txt --steps 20 && mv windows.figures plain.figures
run 1 windows --data from.bin --token-type u16 --steps 20 && cmp windows.figures plain.figures ||
  complain "tokens of two bytes"
refused "'from.bin' is not an llm.c token file: .* help: .* --token-type u16" launch 1 windows --data from.bin --steps 1
refused "--token-type needs u8, u16 or u32, not 'u7'" launch 1 windows --data from.bin --token-type u7 --steps 1
half=$(($(wc -c <from.txt) / 2))
head -c $half from.txt >shard.1.txt && tail -c +$((half + 1)) from.txt >shard.2.txt
run 1 windows --data 'shard.*.txt' --validation 'shard.[2]*' --steps 20 && grep -v validation windows.figures >pattern.figures &&
  cmp pattern.figures plain.figures || complain "a pattern of names"
refused "--validation: no file matches 'none\*.bin'" launch 1 windows --data from.txt --validation 'none*.bin' --steps 1
refused "'packed1.npz.copy' is a zip archive. help: unzip the file first; archives of arrays need names that end in .npz" \
  sh -c "cp packed1.npz packed1.npz.copy && $mpirun -n 1 windows/train --quiet --data packed1.npz.copy --steps 1"
$mpirun -n 1 windows/train --data from.txt --token-type u16 --steps 1 --peak 1e9 >out 2>&1
grep -q "warning: --token-type has no effect on .*: no data file is a .bin without a header" out || complain "--token-type for nothing"

# ---- random changes ----------------------------------------------------------------------------------------
run 1 one $digits --steps 20 --augment flip,crop=1 && run 2 two $digits --steps 20 --augment flip,crop=1 &&
  same one two "random changes"
run 1 still $digits --steps 3 && mv still.figures plain.figures && run 1 still $digits --steps 3 --augment flip,crop=1
validation() { grep validation_loss "$1" | cut -d , -f 2; }
[ "$(validation still.figures)" = "$(validation plain.figures)" ] || complain "random changes in validation"
cmp -s still.figures plain.figures && complain "random changes change nothing"

# ---- CIFAR-10's files, pairs of sentences ------------------------------------------------------------------
batches="--data data_batch_1.bin data_batch_1.bin --augment crop=4,flip"
run 1 cifar1 $batches --steps 5 && run 2 cifar2 $batches --steps 5 && same cifar1 cifar2 CIFAR-10
many="-n 1 --stages 1 --microbatch 32 -D batch=32"
build cifar4 $many --threads 4 cifar.pdm && run 1 cifar4 $batches --steps 40 && cp cifar4.figures one.figures &&
  cp cifar4.safetensors one.safetensors && OMP_NUM_THREADS=4 run 1 cifar4 $batches --steps 40 &&
  same one cifar4 "images by four threads"
grep -q '"samples":32' cifar1.jsonl || complain "two CIFAR-10 files of 16 records are not 32 samples"
sentences="--data source=from.txt next=to.txt"
run 1 pairs1 $sentences --steps 60 && run 2 pairs2 $sentences --steps 60 && same pairs1 pairs2 sentences
below pairs1.jsonl loss 1.5
run 1 pairs1 --data from.ids to.ids --steps 60 && run 2 pairs2 --data next=to.ids source=from.ids --steps 60 &&
  same pairs1 pairs2 "sentences of numbers"
below pairs1.jsonl loss 1.4 # of frequencies alone: 1.56

# ---- corruption, counted positions -------------------------------------------------------------------------
lines="--data labels=from.txt --validation labels=to.txt"
run 1 masked1 $lines --steps 40 && run 2 masked2 $lines --steps 40 && same masked1 masked2 "masked tokens"
run 2 masked3 $lines --steps 40 && same masked1 masked3 "masked tokens, recomputed"
run 2 masked2 $lines --steps 25 --checkpoint half && run 1 masked1 $lines --steps 40 --checkpoint half --resume &&
  cmp masked1.safetensors masked3.safetensors || complain "masked tokens, resumed: other bytes"
run 1 masked1 $lines --steps 40 --seed 2 && cmp -s masked1.figures masked3.figures && complain "the seed masks alike"
run 1 level $lines --steps 6 && [ "$(grep -cE 'loss":(1|1\.0000000[0-9]|0\.9999999[0-9]+)[,}]' level.jsonl)" = 7 ] ||
  { complain "weights of counted positions do not average to 1:"; cat level.jsonl >&2; }

# ---- what is refused -----------------------------------------------------------------------------------------
launches="launch 2 two --steps 3 --data"
refused "'cut-ubyte' is cut short at offset 500: its header says 96 samples of 64 bytes" \
  $launches cut-ubyte train-labels-idx1-ubyte
refused "'t10k-labels-idx1-ubyte' holds 24 samples, but 'train-images-idx3-ubyte' holds 96" \
  $launches train-images-idx3-ubyte t10k-labels-idx1-ubyte
refused "'train-images-idx3-ubyte' holds samples of shape \[8, 8\], but 'image' takes shape \[3, 32, 32\]" \
  launch 2 cifar2 --steps 3 --data train-images-idx3-ubyte train-labels-idx1-ubyte
refused "'fewer.txt' holds 39 samples, but 'from.txt' holds 40" \
  launch 2 pairs2 --steps 3 --data source=from.txt next=fewer.txt
refused "'before=to.txt': 'before' takes no file: the model computes it from 'next'" \
  launch 2 pairs2 --steps 3 --data source=from.txt before=to.txt next=to.txt
printf '3 4 2\n5 128 2\n' >wide.ids
refused "'wide.ids': line 2: token 128 at offset 8 is outside the model's 128 classes" \
  launch 2 pairs2 --steps 3 --data from.ids wide.ids
refused "--augment: the model has no input of shape" launch 2 pairs2 --steps 3 $sentences --augment flip
refused "--log './to.txt' would overwrite an input file" launch 2 pairs2 --steps 3 $sentences --log ./to.txt
exit $failed
