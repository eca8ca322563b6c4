#!/bin/sh
# Models that take turns on two ranks, some with offload: figures, weights, checkpoints and resumed runs are bit-identical to each
# model alone, while ranks change between models.   bits.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
head -c 2000 "$top/tests/reference/text.txt" >text
tied=$top/tests/bits/tied.pdm gpt=$top/models/gpt_mini.pdm small="-D n_layer=3 -D n_embd=64 -D n_ctx=16"

# sharp DIR OPTIONS...: trains all models on two ranks, which change hands wherever they can.
sharp() {
  program=$1/train
  shift
  $mpirun -n 2 "$program" --data text --seed 3 --peak 1e9 --slice 0 "$@" >out 2>&1
}

# alone DIR MODEL OPTIONS...: the model's own program, which MPI takes for a launch of one rank.
alone() {
  program=$1/$2/stage0
  shift 2
  OMPI_MCA_ess_singleton_isolated=1 "$program" --data text --seed 3 --peak 1e9 --quiet "$@" || complain "$program alone"
}

# same WHAT MODEL: logs and weights of the launch and of the model alone.
same() {
  figures "$2.log" >"$2.figures"
  figures "$2.alone.log" >"$2.alone.figures"
  [ -s "$2.figures" ] || complain "$1: '$2' has no log"
  cmp "$2.figures" "$2.alone.figures" || complain "$1: '$2' has other figures than alone"
  cmp "$2.weights" "$2.alone.weights" || complain "$1: '$2' has other weights than alone"
}

level=-O0
build whole --sharp -n 2 --microbatch 2 "$tied" "$tied" -D width=64 "$tied" -D width=64 -D "optimizer=sgd(lr = 0.01)" \
  "$gpt" $small || exit 1
models="tied tied-width=64 tied-width=64-optimizer=sgd_lr_=_0.01_ gpt_mini-n_layer=3-n_embd=64-n_ctx=16"
sharp whole --steps 7 --log '{model}.log' --save '{model}.weights' --validation text --validate-every 3 \
  --checkpoint '{model}.kept' --checkpoint-every 4 --keep 9 --timeline timeline.json \
  --for 'gpt*' --steps 5 || { cat out >&2; complain "four models on two ranks"; }
for model in $models; do
  case $model in gpt*) steps=5 ;; *) steps=7 ;; esac
  alone whole "$model" --steps $steps --log "$model.alone.log" --save "$model.alone.weights" --validation text \
    --validate-every 3 --checkpoint "$model.alone" --checkpoint-every 4 --keep 9
  same "in memory" "$model"
  (cd "$model.kept" && find . -name '*.safetensors' -exec sha256sum {} + | sort) >kept
  (cd "$model.alone" && find . -name '*.safetensors' -exec sha256sum {} + | sort) >kept.alone
  [ -s kept ] && cmp kept kept.alone || complain "'$model' has other checkpoints than alone"
  grep -q "$model  *$steps of $steps updates  loss" out || complain "'$model' is not in the summary"
done
[ "$(grep -c '"ts"' timeline.json)" -ge 6 ] || complain "no model gave its rank to another and came back"

sharp whole --steps 9 --log '{model}.log' --save '{model}.weights' --resume --checkpoint '{model}.kept' ||
  { cat out >&2; complain "resuming four models"; }
for model in $models; do
  rm -f "$model.alone.log"
  alone whole "$model" --steps 9 --log "$model.alone.log" --save "$model.alone.weights" --resume --checkpoint "$model.alone"
  cmp "$model.weights" "$model.alone.weights" || complain "resumed: '$model' has other weights than alone"
done

# In parts: what one model gives back while another computes, and reads ahead when it is expected.
build parts --sharp -n 2 --microbatch 2 --memory 12MiB --spill . "$gpt" $small -D n_layer=5 "$gpt" $small -D n_layer=6 \
  "$gpt" $small -D n_layer=5 -D p_drop=0.1 || exit 1
rm -f *.log
for model in parts/gpt*; do
  grep -q '"chunks": [1-9]*[02-9]' "$model/plan.json" || complain "$model is not in parts"
done
sharp parts --steps 4 --log '{model}.log' --save '{model}.weights' --validation text --validate-every 2 \
  --timeline timeline.json || { cat out >&2; complain "three models in parts on two ranks"; }
for model in parts/gpt*; do
  model=${model#parts/}
  alone parts "$model" --steps 4 --log "$model.alone.log" --save "$model.alone.weights" --validation text --validate-every 2
  same "in parts" "$model"
done
[ "$(grep -c '"ts"' timeline.json)" -ge 5 ] || complain "models in parts hardly took turns"
exit $failed
