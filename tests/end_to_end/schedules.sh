# Every schedule trains with any number of stages:  schedules.sh PDC MODEL SCHEDULE STAGES...
# Schedules without delayed weights give the same bits; each delayed schedule is deterministic, and equals a schedule that
# it coincides with.
pdc=$1 model=$2 schedule=$3
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Werror
shift 3

tiny_mlp() {
  dir=$1
  shift
  build "$dir" -D n_ctx=8 -D n_embd=8 -D hidden=24 -D vocab_size=128 -D clip_norm=0.5 "$@" "$top/models/mlp.pdm"
}

# make NAME RANKS OPTIONS...: compiles the model with one sample a microbatch, twelve a batch, and trains it.
make() {
  name=$1 ranks=$2
  shift 2
  "tiny_$model" "$name" -n "$ranks" --microbatch 1 -D batch=12 "$@" &&
    train_tiny "$ranks" "$name"
}

# Without clipping, which would have to wait for every stage.
pipedream() {
  name=$1 ranks=$2
  shift 2
  make "$name" "$ranks" --stages "$ranks" --schedule pipedream -D batch=1 -D clip_norm=0 "$@"
}

same_again() {
  mv "$1.figures" "$1.before.figures" && mv "$1.safetensors" "$1.before.safetensors"
  train_tiny "$2" "$1" && same "$1.before" "$1"
}

case $schedule in
gpipe | flush | sequential | zb_h1)
  make reference 1 --schedule sequential
  for stages in "$@"; do
    taken || continue
    make "$schedule$stages" "$stages" --stages "$stages" --schedule "$schedule" && same reference "$schedule$stages"
  done
  # A batch of two microbatches, fewer than there may be stages.
  make short 1 --schedule sequential -D batch=2
  make "short$stages" "$stages" --stages "$stages" --schedule "$schedule" -D batch=2 && same short "short$stages"
  ;;
interleaved)
  make reference 1 --schedule sequential
  for shape in "$@"; do # ranks x chunks
    taken || continue
    ranks=${shape%x*} chunks=${shape#*x}
    make "$shape" "$ranks" --stages "$ranks" --schedule interleaved -D chunks="$chunks" && same reference "$shape"
  done
  ;;
2bw)
  make reference 1 --schedule 2bw
  for stages in "$@"; do
    for ahead in 1 2; do
      taken || continue
      name=2bw${stages}_$ahead
      make "$name" "$stages" --stages "$stages" --schedule 2bw --ahead $ahead && same reference "$name"
    done
  done
  ;;
pipedream)
  # On one stage it is `flush` with a microbatch a batch; with vertical sync on two it is `2bw`.
  make flush 1 --schedule flush -D batch=1 -D clip_norm=0 && pipedream alone 1 && same flush alone
  make 2bw 2 --stages 2 --schedule 2bw -D batch=1 -D clip_norm=0 && pipedream synced 2 --ahead 1 -D vertical_sync=true &&
    same 2bw synced
  for stages in "$@"; do
    for sync in false true; do
      # The embedding is tied to the head, on another stage.
      [ "$model $sync" = "gpt false" ] && continue
      taken || continue
      name=pipedream${stages}_$sync
      pipedream "$name" "$stages" -D vertical_sync=$sync && same_again "$name" "$stages"
    done
  done
  ;;
esac
exit $failed
