# configs.sh PDC: what each of NCCL's communicators is given. The blocks (CTAs): few between two stages, as many as NCCL
# chooses within a stage, for replicas and for ranks that share layers, two of them, too. All communicators block: for
# others NCCL starts a thread a group.
pdc=$1
. "$(dirname "$0")/../../launch.sh"
target=cuda
model="-D n_layer=1 -D n_head=4 -D n_embd=64 -D n_ctx=16 -D vocab_size=64 -D batch=4 $top/models/gpt_mini.pdm"
seq 1 2000 >text.txt

# given DIR RANKS LINES...: what communicators of a launch are given: so many, of so many ranks, with so many blocks.
given() {
  dir=$1 n=$2
  shift 2
  CUDA_HOST_TRACE=1 launch "$n" "$dir" --data text.txt --steps 1 --comm nccl 2>"$dir.trace" ||
    { complain "$dir does not run"; tail -n 5 "$dir.trace" >&2; return; }
  sed -n 's/^.*rank 0 of a communicator of //p' "$dir.trace" | sort | uniq -c | sed 's/^ *//' >"$dir.given"
  printf '%s\n' "$@" | cmp -s - "$dir.given" || { complain "$dir: communicators"; cat "$dir.given" >&2; }
}

# Between two stages activations and gradients, for each two replicas; of a parameter that stages share one, of all that
# have it; of a stage's replicas one, and one for the weights that owners send.
build stages -n 2 --schedule flush --stages 2 --microbatch 1 $model &&
  given stages 2 "2 2: 4 CTAs, blocking" "1 2: any number of CTAs, blocking"
build replicas -n 2 --schedule flush --stages 1 --replicas 2 --microbatch 1 $model &&
  given replicas 2 "1 2: any number of CTAs, blocking"
build sharded -n 2 --schedule flush --stages 1 --replicas 2 --shard-optimizer --microbatch 1 $model &&
  given sharded 2 "2 2: any number of CTAs, blocking"
build both -n 4 --schedule flush --stages 2 --replicas 2,2 --microbatch 1 $model &&
  given both 4 "4 2: 4 CTAs, blocking" "2 2: any number of CTAs, blocking" "1 4: any number of CTAs, blocking"
build tensor -n 2 --schedule flush --stages 1 --tensor 2 --microbatch 1 $model &&
  given tensor 2 "2 2: any number of CTAs, blocking"
exit $failed
