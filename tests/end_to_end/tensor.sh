# Tensor parallelism trains like one rank, except for rounding of sums; stages, cuts, schedules of replicas and files change
# no bit:  tensor.sh PDC CASE
# These models compute for longer than they compile, so that -O1 takes less time than -O0.
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O1 more_flags=-Wall,-Wextra,-Werror

# bytes FILE N SHAPE MODULUS: an .npy of N numbers below MODULUS.
bytes() {
  python3 - "$@" <<'PY'
import struct, sys
path, n, shape, modulus = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }" % shape
head += " " * (63 - (10 + len(head)) % 64) + "\n"
data = bytes(i * i % 8191 * 7 % modulus for i in range(n))
open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
PY
}

# near A B: losses of two logs are within $of_losses (1e-5) of each other, weights within $of_weights (1e-4) of a tensor's
# largest.
near() {
  python3 - "$1" "$2" "${of_losses:-1e-5}" "${of_weights:-1e-4}" <<'PY' || complain "$2: not what $1 is"
import array, json, struct, sys

def weights(path):
    raw = open(path + ".safetensors", "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]
    tensors = json.loads(raw[8 : 8 + n])
    tensors.pop("__metadata__", None)
    take = lambda t: array.array("f", raw[8 + n + t["data_offsets"][0] : 8 + n + t["data_offsets"][1]])
    return {k: (t["shape"], take(t)) for k, t in tensors.items()}

def losses(path):
    return [x["loss"] for x in map(json.loads, open(path + ".jsonl")) if "loss" in x]

a, b = losses(sys.argv[1]), losses(sys.argv[2])
assert len(a) == len(b) == 20, (len(a), len(b))
assert a[0] != a[-1], "nothing was learned"
worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
assert worst < float(sys.argv[3]), "losses differ by %g" % worst
a, b = weights(sys.argv[1]), weights(sys.argv[2])
assert a.keys() == b.keys() and all(a[k][0] == b[k][0] for k in a), "other tensors"
for k in a:
    most = max(max(map(abs, a[k][1])), 0.01)  # biases of keys have no gradient, but for rounding
    worst = max(abs(x - y) for x, y in zip(a[k][1], b[k][1])) / most
    assert worst < float(sys.argv[4]), "%s differs by %g" % (k, worst)
PY
}

# trained RANKS DIR OPTIONS...: twenty updates; leaves DIR.jsonl, DIR.figures and DIR.safetensors.
trained() {
  n=$1 dir=$2
  shift 2
  launch "$n" "$dir" --data $data --token-type u8 --steps 20 --seed 5 --log "$dir.jsonl" --save "$dir.safetensors" "$@" ||
    { complain "$dir does not train"; return 1; }
  figures "$dir.jsonl" >"$dir.figures"
}

# shared DEGREE OPTIONS...: builds $model for one rank and for so many that share its layers, as $pins says if it is set,
# and compares them.
shared() {
  degree=$1
  shift
  $model whole --stages 1 "$@" && trained 1 whole || return
  $model shared$degree --stages 1 --tensor "$degree" ${pins:+--sharding "$pins"} "$@" && trained "$degree" shared$degree && near whole shared$degree
}

# calls DEGREE NAME...: the program that so many ranks share calls these functions.
calls() {
  degree=$1
  shift
  for call in "$@"; do
    grep -q "$call(" shared$degree/stage0.c || complain "no $call in the programs of $degree ranks"
  done
}

# A rule that does not make steps of the learning rate's size out of gradients that are nothing but rounding.
sgd="optimizer=sgd(lr = 0.1, momentum = 0.9)"

bert() {
  name=$1
  shift
  build "$name" -D n_layer=1 -D n_head=2 -D width=32 -D n_ctx=16 -D vocab_size=128 -D max_positions=16 -D cls=1 \
    -D sep=2 -D mask=3 -D batch=8 -D "$sgd" "$@" "$top/models/bert.pdm"
}

vgg() {
  name=$1
  shift
  build "$name" -D size=32 -D width=4 -D hidden=64 -D classes=10 -D batch=8 -D "optimizer=sgd(lr = 0.01)" "$@" \
    "$top/models/vgg16.pdm"
}

resnet() {
  name=$1
  shift
  build "$name" -D size=32 -D width=8 -D classes=10 -D "blocks=[1, 1, 1, 1]" -D batch=8 -D "optimizer=sgd(lr = 0.01)" "$@" \
    "$top/models/resnet50.pdm"
}

gpt() {
  name=$1
  shift
  tiny_gpt "$name" -D n_embd=64 -D n_head=4 "$@"
}

data=train.txt model=gpt
case $2 in
gpt)
  taken && shared 2 --schedule flush --microbatch 2 -D "$sgd" && calls 2 pd_all_reduce
  taken && shared 4 --schedule sequential --microbatch 4 -D "$sgd" && calls 4 pd_all_reduce
  ;;
classes) # a tied embedding and head of which each rank has so many classes
  pins=pins
  echo "wte.weight: axis 0" >pins
  parts="pd_all_reduce pd_all_reduce_max pd_gather_part pd_gather_gradient_part"
  taken && shared 2 --schedule 2bw --microbatch 2 -D "$sgd" -D vocab_size=2048 && calls 2 $parts
  taken && shared 4 --schedule flush --microbatch 4 -D "$sgd" -D vocab_size=2048 && calls 4 $parts
  taken || exit $failed
  many="--schedule flush --microbatch 4 --tensor 2 --sharding pins -D vocab_size=2048"
  gpt one --stages 1 $many && trained 2 one || exit
  gpt two --stages 2 --split "h[1]" $many && trained 4 two && same one two
  ;;
uneven) # of a vocabulary that no number of ranks divides: files are the whole model's, and none has more rows than it
  pins=pins
  echo "wte.weight: axis 0" >pins
  tiny="--schedule flush --microbatch 2 -D vocab_size=2045"
  gpt whole --stages 1 $tiny -D "$sgd" && trained 1 whole || exit
  for degree in 2 4; do
    gpt shared$degree --stages 1 --tensor $degree --sharding pins $tiny -D "$sgd" && trained $degree shared$degree &&
      near whole shared$degree
  done
  grep -q 'surplus = 3' shared2/stage0.c || complain "no rows behind the vocabulary's"
  gpt two --stages 2 --split "h[1]" --tensor 2 --sharding pins $tiny -D "$sgd" && trained 4 two && same shared2 two
  launch 2 shared2 --steps 0 --init two.safetensors --save again.safetensors &&
    cmp two.safetensors again.safetensors || complain "weights that are read and saved are others"
  run="--data train.txt --token-type u8 --seed 5 --checkpoint state"
  launch 4 two $run --steps 10 || complain "no checkpoint"
  for next in "2 shared2" "4 shared4" "1 whole"; do
    taken || continue
    set -- $next
    cp -r state going
    cp two.jsonl goes.jsonl
    launch $1 $2 --data train.txt --token-type u8 --seed 5 --checkpoint going --steps 20 --resume --save goes.safetensors ||
      complain "$2 does not go on from two"
    near whole goes
    [ $2 = shared2 ] && { cmp two.safetensors goes.safetensors || complain "resumed, other weights"; }
    rm -r going
  done
  ;;
llama)
  model=tiny_llama
  shared 2 --schedule flush --microbatch 2
  ;;
bert)
  model=bert data="words=words.npy is_random=relation.npy"
  bytes words.npy 384 24,16 128 && bytes relation.npy 24 24,1 2
  shared 2 --schedule flush
  ;;
vgg)
  model=vgg data="image=image.npy label=label.npy"
  bytes image.npy 73728 24,3,32,32 256 && bytes label.npy 24 24,1 10
  shared 2 --schedule flush
  ;;
images) # convolutions of every form between which channels are split; batch norms, whose averages are in the files, too
  model=tiny_images
  taken && shared 2 --schedule flush --microbatch 4 -D "optimizer=sgd(lr = 0.01)" -D clip_norm=0
  taken && shared 4 --schedule 2bw --microbatch 4 -D "optimizer=sgd(lr = 0.01)" -D clip_norm=0
  model=resnet data="image=image.npy label=label.npy"
  bytes image.npy 73728 24,3,32,32 256 && bytes label.npy 24 24,1 10
  taken && shared 2 --schedule flush --microbatch 8
  taken && shared 4 --schedule 2bw --microbatch 4
  ;;
degrees) # four ranks a layer; heads of keys and values that they do not divide; every schedule that others leave out
  model=tiny_llama
  taken && shared 4 --schedule 2bw --microbatch 2 -D "$sgd"
  taken && shared 4 --schedule sequential --microbatch 4 -D "$sgd"
  taken && shared 2 --schedule 2bw --microbatch 4 -D "$sgd"
  model=bert data="words=words.npy is_random=relation.npy"
  bytes words.npy 384 24,16 128 && bytes relation.npy 24 24,1 2
  taken && shared 4 --schedule flush -D n_head=4
  taken && shared 2 --schedule 2bw --microbatch 4
  model=vgg data="image=image.npy label=label.npy"
  bytes image.npy 73728 24,3,32,32 256 && bytes label.npy 24 24,1 10
  taken && shared 4 --schedule 2bw --microbatch 4
  ;;
every) # model, schedule and degree; the cases above are a sample, which ctest runs
  bytes words.npy 384 24,16 128 && bytes relation.npy 24 24,1 2
  bytes image.npy 73728 24,3,32,32 256 && bytes label.npy 24 24,1 10
  for schedule in sequential flush 2bw; do
    for degree in 2 4; do
      echo "$schedule, $degree ranks a layer"
      data=train.txt
      for model in gpt tiny_llama; do shared $degree --schedule $schedule --microbatch 4 -D "$sgd"; done
      model=bert data="words=words.npy is_random=relation.npy"
      shared $degree --schedule $schedule --microbatch 4 -D n_head=4
      model=vgg data="image=image.npy label=label.npy"
      shared $degree --schedule $schedule --microbatch 4
    done
  done
  ;;
spread) # activations by positions of models with grouped heads, two inputs, two losses
  pins=pins
  echo "activations: positions" >pins
  model=tiny_llama
  for way in "2 --schedule flush --microbatch 2" "4 --schedule 2bw --microbatch 4"; do
    taken && shared $way -D n_ctx=64 -D n_embd=128 -D hidden=192 -D "$sgd" && calls ${way%% *} pd_reduce_scatter
  done
  model=bert data="words=words.npy is_random=relation.npy"
  bytes words.npy 1536 24,64 128 && bytes relation.npy 24 24,1 2
  for way in "2 --schedule flush" "4 --schedule sequential"; do
    taken && shared $way -D n_head=4 -D width=128 -D n_ctx=64 -D max_positions=64 && calls ${way%% *} pd_reduce_scatter
  done
  ;;
positions) # of activations that are split by them: as near; stages, cuts, recomputation, ways to meet to the byte
  pins=pins
  echo "activations: positions" >pins
  tiny="--schedule flush --microbatch 2 -D n_ctx=64 -D n_embd=128"
  shared 2 $tiny -D "$sgd" && calls 2 pd_reduce_scatter pd_all_gather || exit
  for way in "--split h[1]" "--split h[0].mlp --recompute on"; do
    taken || continue
    gpt two --stages 2 $way --tensor 2 --sharding pins $tiny -D "$sgd" && trained 4 two && same shared2 two
  done
  for way in "--comm mpi" --check-messages; do
    taken || continue
    cp -r shared2 others
    trained 2 others $way && same shared2 others
    rm -r others
  done
  if taken; then # parts that are shown in several pieces, of several samples each
    gpt one --stages 1 --schedule flush --tensor 2 --sharding pins --microbatch 4 -D n_ctx=288 -D n_embd=768 -D batch=4 \
      -D "$sgd" && run="one --data $text --token-type u8 --steps 2 --seed 5" || exit
    launch 2 $run --save one.safetensors --comm shared && launch 2 $run --save other.safetensors --comm mpi &&
      cmp one.safetensors other.safetensors || complain "other weights by messages"
  fi
  taken && shared 4 --schedule sequential --microbatch 4 -D n_ctx=64 -D n_embd=256 -D "$sgd"
  of_c=bf16 of_losses=2e-3 of_weights=3e-2
  taken && shared 2 $tiny -D "$sgd"
  ;;
bf16) # partial sums are rounded as products are, so that losses are as near as bf16 is to f32; stages, cuts to the byte
  of_c=bf16 of_losses=2e-3 of_weights=3e-2
  for kept in bf16 f32; do
    taken || continue
    shared 2 --residual $kept --schedule flush --microbatch 2 -D "$sgd"
    gpt two --residual $kept --stages 2 --split "h[0].mlp" --schedule flush --recompute on --tensor 2 --microbatch 2 -D "$sgd" &&
      trained 4 two && same shared2 two
  done
  launch 2 shared2 --steps 0 --init two.safetensors --save again.safetensors &&
    cmp two.safetensors again.safetensors || complain "weights that are read and saved are others"
  ;;
bits) # of stages, cuts, recomputation, schedules that read the same weights
  tiny="--tensor 2 --microbatch 2"
  gpt one --stages 1 --schedule flush $tiny && trained 2 one --validation validation.txt --validate-every 5 || exit
  for way in "--split h[1]" "--split h[0].mlp --recompute on" "--split h[1] --schedule gpipe"; do
    taken || continue
    gpt two --stages 2 --schedule flush $tiny $way && trained 4 two --validation validation.txt --validate-every 5 &&
      same one two
  done
  # Through memory and by messages, of values that are shown in several pieces, too.
  for way in "--comm mpi" --check-messages; do
    taken || continue
    cp -r one others
    trained 2 others $way --validation validation.txt --validate-every 5 && same one others
    rm -r others
  done
  taken || exit $failed
  gpt one --stages 1 --schedule flush --tensor 4 --microbatch 8 -D n_ctx=144 && trained 4 one --comm shared || exit
  cp -r one others
  trained 4 others --comm mpi && same one others
  ;;
overlap) # collectives that end at once give the bits of those that end where they are read, however values travel
  mkdir bin
  printf '#!/bin/sh\nexec python3 "%s/at_once.py" "%s" "$@"\n' "$work" "$(command -v clang)" >bin/clang
  chmod +x bin/clang
  cat >at_once.py <<'PY'
import os, re, sys
words = sys.argv[1:]
for i, word in enumerate(words):
    if re.search(r"stage\d+\.c$", word):
        text = open(word).read()
        text, ends = re.subn(r"\n *pd_collective_end\([^;]*;", "", text)
        text, begins = re.subn(r"(pd_\w+_begin\([^;]*?(\w[\w>-]*)\);)", r"\1 pd_collective_end(\2);", text)
        assert begins == ends > 0, (begins, ends)
        words[i] = os.path.join(os.path.dirname(word), "at_once_" + os.path.basename(word))
        open(words[i], "w").write(text)
os.execv(words[0], words)
PY
  echo "activations: positions" >pins
  for way in "2 f32" "2 bf16" "4 f32 -D n_ctx=144" "2 f32 --sharding pins -D n_ctx=64 -D n_embd=128"; do
    taken || continue
    set -- $way
    degree=$1 of_c=$2
    shift 2
    set -- --stages 1 --schedule flush --microbatch 4 --tensor $degree "$@"
    gpt beside "$@" && trained $degree beside || exit
    grep -q 'pd_collective_end(' beside/stage0.c || complain "$way: no collective begins before it ends"
    (PATH="$work/bin:$PATH" && gpt once "$@") && trained $degree once && same beside once
    cp -r beside others
    trained $degree others --comm mpi && same beside others
    rm -r beside once others
  done
  ;;
schedules) # which drain give flush's bits; two chunks a rank and backward passes in two halves meet in one order, too; pipedream,
  # whose stages keep versions of their parts, is as near to whole layers as flush is
  tiny="--tensor 2 --microbatch 2"
  gpt one --stages 1 --schedule flush $tiny && trained 2 one --validation validation.txt --validate-every 5 || exit
  for way in "--schedule zb_h1 --split h[1]" "--schedule interleaved -D chunks=2 --split h[0].mlp,h[1],h[1].mlp"; do
    taken || continue
    gpt two --stages 2 $way $tiny && trained 4 two --validation validation.txt --validate-every 5 && same one two
  done
  stashes() { # RANKS OPTIONS...: of whole layers; twice as many share them
    ranks=$1
    shift
    tiny_llama whole --stages 2 --split "layers[1]" --schedule pipedream -D clip_norm=0 -D "$sgd" "$@" && trained $ranks whole &&
      tiny_llama parts --stages 2 --split "layers[1]" --schedule pipedream -D clip_norm=0 -D "$sgd" "$@" --tensor 2 &&
      trained $((2 * ranks)) parts && near whole parts
  }
  taken && stashes 2 --microbatch 8
  taken && stashes 2 --microbatch 8 -D vertical_sync=true
  taken && stashes 3 --replicas 1,2 --microbatch 4
  ;;
files) # of 2 stages x 2 ranks under 2bw: resumed there to the byte, by a pipeline of whole layers nearly so
  tiny="--stages 2 --split h[1] --schedule 2bw --microbatch 2"
  gpt whole -D "$sgd" $tiny && gpt parts -D "$sgd" --tensor 2 $tiny && trained 2 whole && trained 4 parts || exit
  near whole parts
  run="--data train.txt --token-type u8 --seed 5 --checkpoint state --checkpoint-every 10"
  launch 4 parts $run --steps 10 || complain "no checkpoint"
  cp -r state other
  launch 4 parts $run --steps 20 --resume --save again.safetensors || complain "does not go on"
  cmp parts.safetensors again.safetensors || complain "resumed, other weights"
  launch 2 whole --data train.txt --token-type u8 --seed 5 --checkpoint other --steps 20 --resume --save whole.safetensors ||
    complain "layers that were shared do not go on whole"
  near whole parts
  launch 4 parts --steps 0 --init parts.safetensors --save same.safetensors && cmp parts.safetensors same.safetensors ||
    complain "weights that are read and saved are others"
  ;;
plans) # two stages, two replicas, two and four ranks a layer: near each other; a checkpoint of one goes on in each
  tiny="--schedule flush --microbatch 2"
  gpt s1r1t1 --stages 1 -D "$sgd" $tiny && trained 1 s1r1t1 || exit
  gpt s2r2t1 --stages 2 --split "h[1]" --replicas 2 -D "$sgd" $tiny
  gpt s1r2t2 --stages 1 --replicas 2 --tensor 2 -D "$sgd" $tiny
  gpt s1r1t4 --stages 1 --tensor 4 -D "$sgd" $tiny
  gpt s2r1t2 --stages 2 --split "h[1]" --tensor 2 -D "$sgd" $tiny
  for plan in s2r2t1 s1r2t2 s1r1t4; do trained 4 $plan && near s1r1t1 $plan; done
  for plan in s2r2t1 s1r2t2; do
    launch 4 $plan --data train.txt --token-type u8 --seed 5 --checkpoint state --steps 10 || complain "$plan: no checkpoint"
    for next in s2r2t1 s1r2t2 s1r1t4 s2r1t2; do
      taken || continue
      cp -r state going
      cp $plan.jsonl goes.jsonl
      launch 4 $next --data train.txt --token-type u8 --seed 5 --checkpoint going --steps 20 --resume --save goes.safetensors ||
        complain "$next does not go on from $plan"
      near s1r1t1 goes
      [ $plan = $next ] && { cmp $plan.safetensors goes.safetensors || complain "$plan: resumed, other weights"; }
      rm -r going
    done
    rm -r state
  done
  ;;
killed) # one of two that meet in every pass: the other does not wait for it for ever
  gpt shared --stages 1 --schedule flush --microbatch 2 --tensor 2 || exit
  launch 2 shared --data train.txt --token-type u8 --steps 1000000 --seed 5 --log endless.jsonl 2>said &
  running=$!
  while ! grep -q '"step"' endless.jsonl 2>/dev/null && kill -0 $running 2>/dev/null; do sleep 0.1; done
  for pid in $(pgrep -x stage0); do
    [ "$(readlink "/proc/$pid/cwd")" = "$work" ] && kill -s KILL "$pid" && break
  done
  wait $running && complain "a launch of which a rank is killed ends well"
  grep -q 'exited on signal 9' said || { cat said >&2; complain "does not say that a rank was killed"; }
  for pid in $(pgrep -x stage0); do
    [ "$(readlink "/proc/$pid/cwd")" = "$work" ] && complain "a rank is left behind"
  done
  ;;
cuda) # on tests/cuda/host, in several orders of the streams: by NCCL, and by MPI, the same bits; as near to processors'
  # whole layers as theirs are; in bf16 and with the pipeline in two
  gpt whole --stages 1 --schedule flush --microbatch 2 -D "$sgd" && trained 1 whole || exit
  target=cuda
  gpt shared --stages 1 --schedule flush --microbatch 2 -D "$sgd" --tensor 2 &&
    CUDA_HOST_SEED=1 trained 2 shared && near whole shared || exit
  if taken; then
    target=c
    gpt all --stages 1 --schedule flush --microbatch 2 -D "$sgd" -D vocab_size=1021 && trained 1 all || exit
    target=cuda
    echo "wte.weight: axis 0" >pins
    gpt classes --stages 1 --schedule flush --microbatch 2 -D "$sgd" -D vocab_size=1021 --tensor 2 --sharding pins &&
      CUDA_HOST_SEED=1 trained 2 classes && near all classes || exit
    cp -r shared others
    CUDA_HOST_SEED=2 trained 2 others --comm mpi && same shared others
  fi
  if taken; then
    wide="--stages 1 --schedule flush --microbatch 2 -D n_ctx=64 -D n_embd=128"
    target=c
    gpt joined $wide -D "$sgd" && trained 1 joined || exit
    target=cuda
    echo "activations: positions" >pins
    gpt positions $wide -D "$sgd" --tensor 2 --sharding pins && CUDA_HOST_SEED=1 trained 2 positions &&
      near joined positions || exit
    grep -q 'pd_reduce_scatter(' positions/stage0.cu || complain "no parts of sums in the programs"
  fi
  taken && gpt two --stages 2 --split "h[1]" --schedule flush --microbatch 2 -D "$sgd" --tensor 2 &&
    CUDA_HOST_SEED=3 trained 4 two && same shared two
  taken || exit $failed
  precision=bf16 of_losses=2e-3 of_weights=3e-2
  gpt narrow --stages 1 --schedule 2bw --microbatch 4 -D "$sgd" --tensor 2 && trained 2 narrow || exit
  target=c
  gpt wide --stages 1 --schedule 2bw --microbatch 4 -D "$sgd" && trained 1 wide && near wide narrow
  ;;
refused)
  refuse() { # refuse PATTERN OPTIONS...: pdc says so
    pattern=$1
    shift
    "$pdc" -S -o none "$@" "$top/models/gpt_mini.pdm" >said 2>&1 && complain "$*: is not refused"
    grep -q -e "$pattern" said || { cat said >&2; complain "$*: does not say '$pattern'"; }
  }
  refuse PD0514 --tensor 7
  refuse PD0513 --tensor 65
  refuse PD0513 --sharding "$top/tests/sharding/pinned.txt"
  refuse PD0513 --tensor 2 --schedule spilled --spill .
  refuse PD0513 --tensor 2 --infer
  refuse PD0513 --tensor 2 -n 3
  refuse PD0513 --tensor 2 -D "optimizer=lamb()"
  gpt parts --stages 1 --tensor 2 --schedule flush --microbatch 2 || exit
  launch 4 parts --data train.txt --token-type u8 --steps 1 >said 2>&1 && complain "runs on four ranks"
  grep -q 'use .mpirun -n 2' said || { cat said >&2; complain "does not say how many ranks it needs"; }
  refuse PD0603 --plan parts/plan.json
  ;;
esac
exit $failed
