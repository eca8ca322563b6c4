# transfers.sh BUILD MPIRUN COMM SEEDS: messages by COMM leave no trace in any figure or weight, whatever the seed:
# they are those of one rank on the host, which adds gradients up in the replicas' order. Peer copies also where ranks
# share a device, and where some have peer access and others not.
. "$(dirname "$0")/../../runtime/common.sh"
comm=$3 seeds=$4
. "$top/tests/sample.sh"
data="--data x.npy t.npy --validation vx.npy vt.npy --validate-every 7 --peak 1e9 --quiet --timeout 300"
prefix=$programs/../cuda/transfers/device_

# alike WHAT OPTIONS...: plan $p has the reference's results.
alike() {
  taken || return
  what="$p, $1"
  shift
  plan $p $data "$@" --steps 9 --log all.jsonl --save all.safetensors || complain "$what"
  figures all.jsonl >all.figures
  cmp one.figures all.figures || complain "$what: other figures than on the host"
  cmp one.safetensors all.safetensors || complain "$what: other weights than on the host"
}

for p in 1-1_0_12 1-1_1_12 2_1_12 2-2_0_12 2-2_1_12 2-2_1_4 1-2-1_1_12 1-1-1_2_1; do
  reference $p $data --steps 9 --log one.jsonl --save one.safetensors || complain "$p: reference"
  figures one.jsonl >one.figures
  for seed in $seeds; do
    export CUDA_HOST_SEED=$seed
    check= # checksums of messages change nothing either
    [ "$comm" = mpi ] && [ "$seed" = 2 ] && check=--check-messages
    alike "seed $seed" $check --comm $comm
  done
  [ "$comm" = peer ] || continue
  CUDA_HOST_DEVICES=1 alike "one device" --comm peer
  CUDA_HOST_DEVICES=4 CUDA_HOST_PEERS=2 alike "groups of two"
done
exit $failed
