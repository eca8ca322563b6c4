# Emitted code of every model: no warnings of clang, no reports of sanitizers, deterministic text.
#   emitted.sh PDC MODEL
pdc=$1 model=$2
. "$(dirname "$0")/../launch.sh"
text="$top/tests/reference/text.txt"
sanitizers=-O1,-g,-fsanitize=address,-fsanitize=undefined,-fno-sanitize-recover=undefined,-fno-omit-frame-pointer
export ASAN_OPTIONS=detect_leaks=0

# At its own size: three stages, compiled with warnings as errors; written twice, the sources are equal.
build full -n 3 --stages 3 --cc "clang -Werror" "$top/models/$model.pdm"
build again -S -n 3 --stages 3 "$top/models/$model.pdm"
for stage in 0 1 2; do
  cmp full/stage$stage.c again/stage$stage.c || complain "stage$stage.c differs from run to run"
done
[ "$(cat full/stage*.c | grep -c TODO)" = 0 ] || complain "unfinished code"

# At a reduced size, under the sanitizers, with less optimisation: they slow clang down several times.
more_flags=-Werror,$sanitizers
case $model in
gpt2 | gpt_mini) small="-D n_layer=2 -D n_head=2 -D n_embd=32 -D p_drop=0.1" ;;
llama_mini) small="-D n_layer=2 -D n_head=4 -D n_kv_head=2 -D n_embd=32 -D hidden=48" ;;
mamba_mini) small="-D n_layer=2 -D n_embd=32 -D n_state=4 -D keep=4" ;;
mlp) small="-D n_embd=4 -D hidden=24" ;;
esac
small="$small -D n_ctx=16 -D vocab_size=128 -D batch=8"
set -- "1 --stages 1 --schedule 2bw" "2 --stages 2 --recompute on --schedule flush" "3 --stages 3 --schedule 2bw"
[ "$model" = gpt2 ] && set -- "$@" "3 --stages 3 --schedule zb_h1" "2 --stages 2 --schedule interleaved -D chunks=3" \
  "2 --stages 2 --schedule pipedream -D vertical_sync=true -D batch=2" "4 --replicas 2,2 --schedule 2bw" \
  "3 --replicas 1,2 --recompute on --schedule gpipe"
for plan in "$@"; do
  taken || continue
  set -- $plan
  name=small_$1
  ranks=$1
  shift
  build "$name" -n "$ranks" --microbatch 2 $small "$@" \
    "$top/models/$model.pdm" || continue
  launch "$ranks" "$name" --data "$text" --validation "$text" --validate-every 2 --steps 4 --log "$name.jsonl" \
    --save "$name.safetensors" >out 2>&1 || { cat out >&2; complain "$plan: does not run clean"; }
  grep -E "runtime error|AddressSanitizer" out >&2 && complain "$plan: the sanitizers object"
done
exit $failed
