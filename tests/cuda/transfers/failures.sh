# failures.sh BUILD MPIRUN: a failure between devices ends the launch with one message, by NCCL and by MPI.
. "$(dirname "$0")/../../runtime/common.sh"
data="--data x.npy t.npy --quiet --peak 1e9"
prefix=$programs/../cuda/transfers/device_
device() { plan 1-1_1_12 "$@"; }
endless() { stopped "$1" device_1-1_1_12_1 device $data --steps 1000000 --comm $comm --log endless.log --timeout 5; }
for comm in peer nccl mpi; do
  refused "silent rank, $comm" "0 (stage 0): nothing came for [0-9]* s (--timeout): waited for .* rank 1" \
    endless STOP
  endless KILL >out 2>err && complain "killed rank, $comm: the launch reports no failure"
  grep -q "exited on signal 9\|rank 1 of the communicator is gone" err || complain "killed rank, $comm: $(cat err)"
  refused "a number that is none, $comm" "1 (stage 1): step 1: the loss of microbatch [0-9]* is non-finite" \
    device --data nan.npy t.npy --quiet --peak 1 --steps 3 --comm $comm
done
# NCCL's calls block while other ranks have not come: an alarm watches them.
CUDA_HOST_NCCL_SILENT=1 refused "a rank that opens no line" \
  "0 (stage 0): nothing came for 3 s (--timeout): waited to open a line by NCCL between ranks 0 and 1" \
  device $data --steps 1 --comm nccl --timeout 3
refused "transport" "0 (stage 0): --comm tcp is not a transport between GPUs. help: use peer, nccl or mpi" \
  device $data --steps 1 --comm tcp

# went WHAT WAY NOTE: two updates by default take this way, and say so; NOTE "": without a word.
went() {
  device --data x.npy t.npy --steps 2 --peak 1 --log way.jsonl >out 2>err || complain "$1: $(cat err)"
  grep -q "\"messages\":\"$2\"" way.jsonl || complain "$1: $(head -1 way.jsonl)"
  grep "note:" err >notes
  if [ "$3" ]; then grep -q "$3" notes; else ! [ -s notes ]; fi || complain "$1: $(cat err)"
}
went "all can copy" "peer copies" ""
apart="ranks 0 and 1 use no peer copies"
CUDA_HOST_PEERS=1 went "no peer access" nccl "$apart: their GPUs have no peer access to each other"
CUDA_HOST_IPC=0 went "containers" nccl "$apart: operation not supported"
CUDA_HOST_PEERS=1 refused "no peer access" "0 (stage 0): --comm peer: ranks 0 and 1 cannot copy to each other's GPU: their" \
  device $data --steps 1 --comm peer
CUDA_HOST_IPC=blind refused "copies that are lost" "1 (stage 1): the data that rank 0 copied to this rank's GPU did not arrive" \
  device $data --steps 1
refused "checksums" "0 (stage 0): --check-messages needs --comm mpi" \
  device $data --steps 1 --check-messages --comm peer
# Instances of a divided GPU: neither copies nor NCCL.
export CUDA_HOST_MIG=1
went "MIG" mpi "rank 0 has a MIG instance of device 00000000:01:00.0 of .*: messages go through host memory"
refused "MIG by NCCL" "0 (stage 0): --comm nccl: rank 0 has a MIG instance of device .*, which NCCL does not support. help: use --comm mpi" \
  device $data --steps 1 --comm nccl
refused "MIG by copies" "0 (stage 0): --comm peer: ranks 0 and 1 cannot copy to each other's GPU: MIG instances have no peer" \
  device $data --steps 1 --comm peer
unset CUDA_HOST_MIG
export CUDA_HOST_DEVICES=1
went "one device" "peer copies" ""
refused "one device" "0 (stage 0): --comm nccl: ranks 0 and 1 share device 00000000:01:00.0 of .*: use --comm mpi" \
  device $data --steps 1 --comm nccl
CUDA_HOST_IPC=0 went "one device, by MPI" mpi "ranks 0 and 1 share device .*: messages go through host memory"
exit $failed
