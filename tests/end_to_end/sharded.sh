# Optimizer state sharding is bit-identical to training without it:  sharded.sh PDC CASE
# The model's parameters are some tiles each, so that parts divide them.
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Wall,-Wextra,-Werror

# gpt NAME OPTIONS...: larger than the other tests' one.
gpt() {
  name=$1
  shift
  tiny_gpt "$name" -D n_embd=96 -D vocab_size=643 -D batch=12 "$@"
}

# shared REPLICAS OPTIONS...: builds both ways on these replicas, each so many ranks as $tensor says, and compares all that a
# training leaves; fails where the sample leaves it out.
shared() {
  taken || return 1
  replicas=$1
  shift
  stages=$(echo "$replicas" | tr , '\n' | wc -l) ranks=$(echo "$replicas" | tr , + | sed 's/^/echo $((/; s/$/))/' | sh)
  ranks=$((ranks * tensor))
  split=$([ $tensor = 1 ] || echo --tensor $tensor)
  [ "$stages" = 1 ] || split="$split --split $middle" # or the planner might cut elsewhere where updates take less time
  for way in whole shared; do
    option=$([ $way = shared ] && echo --shard-optimizer $bucket)
    $model $way --stages "$stages" $split --replicas "$replicas" $option "$@" || return
    rm -rf "$way.state"
    train_tiny "$ranks" $way --checkpoint $way.state --checkpoint-every 5 $run || return
  done
  same whole shared
  for step in 5 10 12; do
    for shard in whole.state/step-$step/shard-*; do
      cmp "$shard" "shared.state/step-$step/${shard##*/}" || complain "$*: another $shard on $replicas"
    done
  done
  return 0
}

# Batch norm's averages are parameters, too.
images() {
  name=$1
  shift
  build "$name" -D clip_norm=0.5 -D batch=8 "$@" "$top/tests/bits/images.pdm"
}

# resumes: goes on from the other way's checkpoints of step 5, which were compared.
resumes() {
  for way in whole shared; do
    rm -rf "$way.again" && cp -r whole.state "$way.again" && rm -r "$way.again/step-10" "$way.again/step-12"
    mv "$way.safetensors" "$way.first.safetensors"
    train_again "$way"
    cmp "$way.safetensors" "$way.first.safetensors" || complain "$way: resumed, other weights"
  done
  cmp shared.again/step-12/shard-0-of-1.safetensors whole.state/step-12/shard-0-of-1.safetensors ||
    complain "resumed, another checkpoint"
}

train_again() {
  launch $((2 * tensor)) "$1" --data train.txt --token-type u8 --steps 12 --seed 5 --checkpoint "$1.again" --checkpoint-every 5 --resume \
    --save "$1.safetensors" $run || complain "$1 does not go on"
}

model=gpt middle="h[1]" run= tensor=1 bucket="--bucket 1" # each place that completes gradients is one
case $2 in
2bw)
  run="--check-messages --audit 2"
  shared 2 --microbatch 3 --schedule 2bw && resumes
  run=
  shared 3 --microbatch 2 --schedule 2bw
  shared 2,2 --microbatch 1 --schedule 2bw
  shared 1,2 --microbatch 1 --schedule 2bw
  ;;
drained)
  run="--comm mpi"
  shared 2,2 --microbatch 2 --schedule flush
  run=
  shared 2,2 --microbatch 2 --schedule gpipe
  shared 2 --microbatch 6 --schedule sequential
  ;;
tensor) # each rank of a shard group keeps its part of the state of its part of a parameter
  tensor=2 run="--check-messages --audit 2"
  shared 2 --microbatch 3 --schedule 2bw && resumes
  run="--comm mpi"
  shared 1,2 --microbatch 3 --schedule flush -D ema=0.9
  run=
  echo "wte.weight: axis 0" >pins # 643 classes: the last part has a row behind them
  shared 3 --microbatch 2 --schedule gpipe --sharding pins
  of_c=bf16
  shared 2 --microbatch 3 --schedule 2bw -D ema=0.9 && resumes
  ;;
pipedream)
  bucket=
  shared 2,2 --microbatch 3 --schedule pipedream -D batch=6 -D vertical_sync=true
  ;;
bf16)
  of_c=bf16
  shared 2 --microbatch 3 --schedule 2bw && resumes
  shared 2,3 --microbatch 1 --schedule flush -D ema=0.9
  ;;
averages)
  run="--save-raw raw.safetensors"
  shared 2 --microbatch 3 --schedule 2bw -D ema=0.9 && resumes
  ;;
rules)
  shared 2 --microbatch 3 --schedule 2bw -D "optimizer=lamb(lr = 0.01)"
  shared 3 --microbatch 4 --schedule flush -D "optimizer=adafactor(lr = 0.01)"
  shared 2 --microbatch 3 --schedule 2bw -D "optimizer=muon(lr = 0.01)" && resumes
  shared 2 --microbatch 3 --schedule 2bw -D "optimizer=sgd(lr = 0.01)"
  ;;
images)
  model=images middle=left
  shared 2,2 --microbatch 2 --schedule 2bw
  ;;
cuda)
  target=cuda run="--comm mpi"
  shared 2 --microbatch 3 --schedule 2bw
  precision=bf16 run=
  shared 2 --microbatch 3 --schedule flush -D ema=0.9 && resumes
  tensor=2
  shared 2 --microbatch 3 --schedule 2bw
  ;;
*) complain "no case '$2'" ;;
esac
exit $failed
