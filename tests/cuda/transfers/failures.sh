# failures.sh BUILD MPIRUN: a failure between devices ends the launch with one message, by NCCL and by MPI.
. "$(dirname "$0")/../../runtime/common.sh"
data="--data x.npy t.npy --quiet --peak 1e9"
prefix=$programs/../cuda/transfers/device_
device() { plan 1-1_1_12 "$@"; }
endless() { stopped "$1" device_1-1_1_12_1 device $data --steps 1000000 --comm $comm --log endless.log --timeout 5; }
for comm in nccl mpi; do
  refused "silent rank, $comm" "0 (stage 0): nothing came for [0-9]* s (--timeout): waited for .* rank 1" \
    endless STOP
  endless KILL >out 2>err && complain "killed rank, $comm: the launch reports no failure"
  grep -q "exited on signal 9\|rank 1 of the communicator is gone" err || complain "killed rank, $comm: $(cat err)"
  refused "a number that is none, $comm" "1 (stage 1): step 1: the loss of microbatch [0-9]* is not finite" \
    device --data nan.npy t.npy --quiet --peak 1 --steps 3 --comm $comm
done
refused "transport" "0 (stage 0): --comm tcp: messages travel by nccl or by mpi" device $data --steps 1 --comm tcp
export CUDA_HOST_DEVICES=1
refused "one device" "0 (stage 0): --comm nccl: ranks 0 and 1 share device 00000000:01:00.0 of .*: use --comm mpi" \
  device $data --steps 1 --comm nccl
device --data x.npy t.npy --steps 2 --peak 1 >out 2>err || complain "one device, by MPI"
grep -q "note: ranks 0 and 1 share a device: messages travel through the host's memory, by MPI" err ||
  complain "one device: $(cat err)"
exit $failed
