# emitted.sh PDC: emitted CUDA programs train to the same bytes by peer copies, NCCL and MPI, in any order of the streams:
# chunks that share lines, stages of unequal replicas, messages of bfloat16, validation, a resumed training.
pdc=$1
. "$(dirname "$0")/../../launch.sh"
target=cuda
export CUDA_HOST_LEVEL=-O0 # four updates: compiling takes most of the time
model="-D n_layer=4 -D n_head=2 -D n_embd=32 -D n_ctx=16 -D vocab_size=128 -D clip_norm=1 $top/models/gpt_mini.pdm"
text=$top/tests/reference/text.txt
head -c 1000 "$text" >held_out.txt

# same DIR RANKS: one saved and logged result, whatever carries the messages.
same() {
  for run in "nccl 1" "mpi 1" "peer 1" "nccl 2" "peer 2" "mpi 0"; do
    [ "$run" = "nccl 1" ] || taken || continue
    name=$1.$(echo $run | tr ' ' .)
    CUDA_HOST_SEED=${run#* } launch "$2" "$1" --data "$text" --steps 4 --validation held_out.txt \
      --validate-every 2 --comm ${run% *} --log "$name.jsonl" --save "$name.safetensors" ||
      { complain "$name does not run"; return; }
    [ "$(figures "$name.jsonl" | wc -l)" = 6 ] || complain "$name: not four updates and two validations"
    [ "$(figures "$1.nccl.1.jsonl")" = "$(figures "$name.jsonl")" ] || complain "$name: other figures than by NCCL"
    cmp "$1.nccl.1.safetensors" "$name.safetensors" || complain "$name: other weights than by NCCL"
  done
}

build interleaved -n 2 --schedule interleaved --stages 2 --microbatch 1 $model && same interleaved 2
build unequal -n 3 --schedule 2bw --stages 2 --replicas 2,1 --microbatch 1 $model && same unequal 3
precision=bf16
build bf16 -n 2 --schedule flush --stages 2 --microbatch 1 $model && same bf16 2

for comm in peer nccl mpi; do
  launch 2 bf16 --data "$text" --steps 2 --checkpoint state.$comm --comm $comm &&
    launch 2 bf16 --data "$text" --steps 4 --checkpoint state.$comm --resume --comm $comm \
      --save resumed.safetensors ||
    complain "resuming, $comm"
  cmp resumed.safetensors bf16.nccl.1.safetensors || complain "other weights after resuming, $comm"
done
exit $failed
