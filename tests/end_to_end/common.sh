# Tiny models, the GPT-2 with all features that partitions could affect: tied embeddings, dropout, clipping, validation.
# $gpt: file to use instead of models/gpt2.pdm.
. "$(dirname "$0")/../launch.sh"
text="$top/tests/reference/text.txt"
head -c 560 "$text" >train.txt
tail -c 129 "$text" >validation.txt

tiny_gpt() {
  dir=$1
  shift
  build "$dir" -D n_layer=2 -D n_head=2 -D n_embd=32 -D n_ctx=16 -D vocab_size=128 -D p_drop=0.2 -D batch=8 \
    -D clip_norm=0.5 -D "optimizer=adamw(lr = 0.01, betas = (0.9, 0.95), weight_decay = 0.1)" \
    -D "lr_schedule=cosine(warmup = 2, total = 12, floor = 1e-3)" "$@" "${gpt:-$top/models/gpt2.pdm}"
}

tiny_llama() {
  dir=$1
  shift
  build "$dir" -D n_layer=2 -D n_head=4 -D n_kv_head=2 -D n_embd=32 -D hidden=48 -D n_ctx=16 \
    -D vocab_size=128 -D batch=8 -D clip_norm=0.5 "$@" "$top/models/llama_mini.pdm"
}

tiny_sequences() {
  dir=$1
  shift
  build "$dir" "$@" "$top/tests/end_to_end/sequences.pdm"
}

tiny_images() {
  dir=$1
  shift
  build "$dir" "$@" "$top/tests/end_to_end/images.pdm"
}

# train_tiny RANKS DIR OPTIONS...: twelve updates; leaves DIR.jsonl, DIR.figures and DIR.safetensors.
train_tiny() {
  n=$1 dir=$2
  shift 2
  launch "$n" "$dir" --data train.txt --token-type u8 --validation validation.txt --validate-every 5 --steps 12 --seed 5 \
    --log "$dir.jsonl" --save "$dir.safetensors" "$@" || { complain "$dir does not train"; return 1; }
  figures "$dir.jsonl" >"$dir.figures"
  [ "$(grep -c '"loss"' "$dir.figures")" = 12 ] || complain "$dir: not twelve updates in the log"
}

# same A B: figures and weights of two runs are the same bytes.
same() {
  cmp "$1.figures" "$2.figures" || complain "$2: other losses than $1"
  cmp "$1.safetensors" "$2.safetensors" || complain "$2: other weights than $1"
}
