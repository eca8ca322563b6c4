#!/bin/sh
# Offload of optimizer state and of all other data between steps: bf16 with masters, averages, whole-tensor update rules,
# frozen parameters, several groups; dropout and a tied parameter are in the model.
# settings.sh PDC [TARGET]
pdc=$1 model=tied target=${2:-c}
. "$(dirname "$0")/../bits/common.sh"
model=$top/tests/bits/tied.pdm

. "$top/tests/spill/limits.sh"

# same NAME RANKS SCHEDULE OPTIONS...: five updates with validations; the first of these runs says what bytes are wanted.
same() {
  name=$1 ranks=$2
  shift 2
  if [ "$1" = spilled ]; then
    split=$3 stages=$ranks
    shift 3
    next_place
    limited plan.json "$share" "$share" 2 "$split" "$@" "$model"
    set -- --plan plan.json --spill "$place" "$@"
  else
    set -- -n "$ranks" --microbatch 2 --schedule "$@"
  fi
  seed=$((seed + 1))
  export CUDA_HOST_SEED=$seed
  build "$name" "$@" "$model" &&
    launch "$ranks" "$name" --data text --steps 5 --seed 3 --validation text --validate-every 2 --log log --save weights ||
    complain "$name: '$*' does not train"
  { figures log; sha256sum <weights; } >"$name.bytes"
  rm -rf "$name" weights log
  if [ ! -f wanted ]; then
    mv "$name.bytes" wanted
    grep -q validation_loss wanted || complain "$name: '$*' validates nothing"
  else
    cmp "$name.bytes" wanted || complain "$name: '$*': other bytes than what does not spill"
  fi
}

# setting NAME OPTIONS...: in few parts, in many, and in stages, where the sample has it.
setting() {
  taken || return
  name=$1
  shift
  rm -f wanted
  same "$name" 1 sequential "$@"
  share=50
  same "${name}_2" 1 spilled --split dropout "$@"
  share=0
  same "${name}_5" 1 spilled --split fc,dropout,proj,gain "$@"
  same "${name}_stages" 2 spilled --split fc,/dropout,proj,gain "$@"
}

level=-O0 seed=0
setting plain
setting momentum -D 'optimizer=nesterov(lr=0.05, momentum=0.9)'
setting sign -D 'optimizer=lion(lr=0.001)'
setting descent -D 'optimizer=sgd(lr=0.1)'
[ "$update" = host ] || setting tensors -D 'optimizer=muon(lr=0.01)' # which the host does not make
[ "$update" = host ] || setting shapes -D 'optimizer=adafactor(lr=0.01)'
setting frozen -D 'freeze="ln.*"'
setting averages -D ema=0.9
setting unclipped -D clip_norm=0
of_c=bf16 precision=bf16
setting bf16
setting bf16_averages -D ema=0.9
exit $failed
