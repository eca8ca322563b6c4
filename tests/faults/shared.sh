# --check-messages reports a bit that flips in shared memory between the sender's write and the receiver's read, before use:
# in activations, gradients, and sums of replicas.  shared.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0 more_flags=-Xlinker,--wrap=pd_checksum,$here/checksums.c
text=$top/tests/reference/text.txt
train() { # NAME RANKS ENVIRONMENT OPTIONS...
  name=$1 n=$2 fault=$3
  shift 3
  $mpirun -n "$n" -x PD_FLIP="$fault" "$name/train" --quiet --peak 1e9 --timeout 60 --data "$text" --steps 4 --comm shared \
    "$@" >out 2>err
}
# found NAME RANKS NUMBER:RANK MESSAGE: which checksum it is that does not match what it is compared with.
found() {
  train "$1" "$2" "$3" --check-messages && complain "$1 $3: is not found"
  grep -q "^fault: a bit" err || complain "$1 $3: no bit was changed"
  grep -qE "^pd: rank ${3#*:} \(stage [01]\): --check-messages: $4" err || complain "$1 $3: said was $(cat err)"
}
small="-D n_layer=2 -D n_ctx=16 -D vocab_size=128 -D n_embd=16 -D n_head=2 -D batch=8"
build stages -n 2 $small --stages 2 --microbatch 2 --schedule sequential "$top/models/gpt2.pdm" || exit 1
build replicas -n 2 $small --stages 1 --replicas 2 --no-shard-optimizer --microbatch 2 --schedule flush "$top/models/gpt2.pdm" || exit 1
for name in stages replicas; do
  train $name 2 "" --save whole --check-messages || complain "$name: without a fault: $(cat err)"
  train $name 2 "1:1" --save unchecked || complain "$name: without checksums: $(cat err)"
  cmp whole unchecked || complain "$name: --check-messages changes results"
  grep -q "^fault" err && complain "$name: checksums that nobody asked for"
done
# One microbatch after the other, rank 1 receives activations and then sends gradients, rank 0 the other way around.
for number in 1 3; do
  found stages 2 $number:1 "[0-9]* bytes from rank 0 arrived"
  found stages 2 $((number + 1)):0 "[0-9]* bytes from rank 1 arrived"
done
# Of a batch: of the other's shard as it leaves it, of its own as the other left it, of the sum, and of the other's sum.
found replicas 2 2:0 "step 1: the checksum of [0-9]* bytes of gradients from rank 1"
found replicas 2 4:1 "step 1: the checksum of [0-9]* bytes of gradients from rank 0"
found replicas 2 6:1 "step 2: the checksum of [0-9]* bytes of gradients from rank 0"
exit $failed
