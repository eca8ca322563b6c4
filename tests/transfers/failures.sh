# failures.sh BUILD MPIRUN: a failure between devices ends the launch with one message, by NCCL and by MPI.
. "$(dirname "$0")/../runtime/common.sh"
data="--data x.npy t.npy --quiet --peak 1e9"
device() {
  stage=$programs/../transfers/device_1-1_1_12
  timeout 60 $mpirun -n 1 "${stage}_0" "$@" : -n 1 "${stage}_1" "$@"
}
# check NAME MESSAGE COMMAND...
check() {
  name=$1 message=$2
  shift 2
  "$@" >out 2>err
  status=$?
  [ $status != 0 ] && [ $status != 124 ] || complain "$name: exit status $status"
  [ "$(grep -c '^pd: rank' err)" = 1 ] && grep -q "^pd: rank $message" err || complain "$name: $(cat err)"
}
# stopped SIGNAL OPTIONS...: sends rank 1 the signal.
stopped() {
  signal=$1
  shift
  device $data --steps 1000000 "$@" &
  launch=$!
  sleep 3
  for p in $(pidof device_1-1_1_12_1); do
    [ "$(readlink /proc/$p/cwd)" = "$work" ] && kill -s "$signal" "$p" && break
  done
  wait $launch
}
for comm in nccl mpi; do
  check "silent rank, $comm" "0 (stage 0): nothing came for [23] s (--timeout): waited for .* rank 1" \
    stopped STOP --comm $comm --timeout 2
  stopped KILL --comm $comm >out 2>err && complain "killed rank, $comm: the launch reports no failure"
  grep -q "exited on signal 9\|rank 1 of the communicator is gone" err || complain "killed rank, $comm: $(cat err)"
  check "a number that is none, $comm" "1 (stage 1): step 1: the loss of microbatch [0-9]* is not finite" \
    device --data nan.npy t.npy --quiet --peak 1 --steps 3 --comm $comm
done
check "transport" "0 (stage 0): --comm tcp: messages travel by nccl or by mpi" device $data --steps 1 --comm tcp
export CUDA_HOST_DEVICES=1
check "one device" "0 (stage 0): --comm nccl: ranks 0 and 1 share device 00000000:01:00.0 of .*: use --comm mpi" \
  device $data --steps 1 --comm nccl
device --data x.npy t.npy --steps 2 --peak 1 >out 2>err || complain "one device, by MPI"
grep -q "note: ranks 0 and 1 share a device: messages travel through the host's memory, by MPI" err ||
  complain "one device: $(cat err)"
exit $failed
