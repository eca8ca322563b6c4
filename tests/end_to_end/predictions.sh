# Refusals and failures of --predict, which leave no incomplete file:  predictions.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Wall,-Wextra,-Werror
golden=$top/tests/golden/inference
data="image=$golden.image.npy label=$golden.label.npy"

# infer N DIR OPTIONS...
infer() {
  ranks=$1 program=$2/infer
  shift 2
  # shellcheck disable=SC2086
  $mpirun -n "$ranks" "$program" --quiet --timeout 300 --init "$golden.init.safetensors" --data $data "$@"
}

# says WANT COMMAND...: it fails with this in its message, and leaves no array.
says() {
  want=$1
  shift
  "$@" >out 2>&1 && complain "not refused: $*"
  grep -qF -- "$want" out || complain "$*: '$want' expected, not: $(head -n 3 out)"
  left=$(find . -maxdepth 1 -name '*.npy*' ! -name kept.npy)
  [ -z "$left" ] || complain "$*: left $left"
}

build one --infer --stages 1 --microbatch 4 "$golden.pdm" || exit 1
build two --infer --stages 2 --microbatch 1 "$golden.pdm" || exit 1
# A microbatch, and replicas, that do not go into the model's batch, which is of updates.
build odd --infer --replicas 2,1 --microbatch 7 "$golden.pdm" || exit 1
infer 3 odd --predict logits=odd_rows || complain "a microbatch beyond the batch"
infer 1 one --predict logits=even_rows || complain "a microbatch of the batch"
cmp -n 128 odd_rows even_rows && [ "$(wc -c <odd_rows)" = "$(wc -c <even_rows)" ] || complain "other rows with another microbatch"
build trained --stages 1 --microbatch 4 "$golden.pdm" || exit 1
grep -q 'pd_predict\|probabilities' trained/stage0.c && complain "a training keeps outputs"

says "the model has several outputs. help: use NAME=PATH, where NAME is one of 'logits', 'features', 'probabilities', 'flipped'" infer 1 one --predict l.npy
says "'logit=l.npy' names no output" infer 1 one --predict logit=l.npy
says "'logits' is given twice" infer 1 one --predict logits=a.npy logits=b.npy
says "--predict 'p.tsv': a table has the class of each sample, but 'flipped' is not one number per class" infer 1 one --predict flipped=p.tsv
says "--predict 'a.b/l.csv': predictions are .npy or .tsv files. help: write 'a.b/l.npy' or 'a.b/l.tsv'" infer 1 one --predict logits=a.b/l.csv
says "two outputs cannot both be 'a.npy'" infer 1 one --predict logits=a.npy features=a.npy
says "two outputs cannot both be './a.npy'" infer 1 one --predict logits=a.npy features=./a.npy
says "two outputs cannot both be 'a.npy': --log and --predict" infer 1 one --predict logits=a.npy --log "$work/a.npy"
says "cannot write 'missing/l.npy'" infer 2 two --predict logits=missing/l.npy
says "would overwrite an input file" infer 1 one --predict "logits=$golden.image.npy"
says "help: build with pdc --infer" launch 1 trained --data x --steps 1 --predict l.npy
mkdir bad && cp "$golden.image.npy" bad/images.npy # not finite in row 5 of 3 x 6 x 6 numbers
printf '\000\000\300\177' | dd of=bad/images.npy bs=1 seek=$((128 + 5 * 432)) conv=notrunc 2>/dev/null
data="image=bad/images.npy label=$golden.label.npy"
says "the loss of microbatch 2 is non-finite; first non-finite tensor: input 'image', row 5 of its file" infer 1 one
says "the loss of microbatch 6 is non-finite; first non-finite tensor: input 'image', row 5 of its file" infer 2 two
data="image=$golden.image.npy label=$golden.label.npy"
sed '/^ *output/d' "$golden.pdm" >none.pdm
build none --infer --stages 1 --microbatch 4 none.pdm && says "the model declares no output" infer 1 none --predict l.npy
sed '/^ *loss\|^ *metric\|^ *target/d; /output [^l]/d' "$golden.pdm" >only.pdm
if build only --infer --stages 1 --microbatch 4 only.pdm; then
  data=image=$golden.image.npy
  infer 1 only --predict kept.npy || complain "a model without a loss does not predict"
  says "no loss to evaluate" infer 1 only
  data="image=$golden.image.npy label=$golden.label.npy"
fi

# 47104 samples.
head -c 128 "$golden.image.npy" | LC_ALL=C sed 's/(23, 3, 6, 6), }   /(47104, 3, 6, 6), }/' >many.bytes
tail -c +129 "$golden.image.npy" >rows
for twice in 1 2 3 4 5 6 7 8 9 10 11; do cat rows rows >more && mv more rows; done
cat rows >>many.bytes
mkdir many && mv many.bytes many/images.npy
data=image=many/images.npy

# A disk that is full, here at 20 MB of 27: told by the file's name, before anything is computed; the array that was
# there stays.
cp kept.npy before
full() {
  # shellcheck disable=SC2086
  $mpirun -n 2 sh -c 'ulimit -f 40000; exec two/infer "$@"' x --quiet --timeout 300 --init "$golden.init.safetensors" \
    --data $data --predict logits=kept.npy features=features.npy
}
says "cannot write 'features.npy'" full
cmp before kept.npy || complain "an earlier array is lost"

# A rank that is killed: the launch fails and leaves nothing half written.
killed() {
  infer 2 two --predict logits=kept.npy &
  running=$!
  while ! ls kept.npy.*.new >/dev/null 2>&1 && kill -0 $running 2>/dev/null; do sleep 0.1; done
  for pid in $(pidof stage1); do
    [ "$(readlink "/proc/$pid/cwd")" = "$work" ] && kill -s KILL "$pid"
  done
  wait $running
}
says "exited on signal 9" killed
cmp before kept.npy || complain "an earlier array is lost with a killed rank"
exit $failed
