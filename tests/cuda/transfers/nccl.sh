# nccl.sh PROGRAM MPIRUN: what NCCL does not allow its stand-in does not either.
program=$1 mpirun="$2 --bind-to none --oversubscribe -n 2"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
err=$(mktemp) || exit 1
trap 'rm -f "$err"' EXIT
failed=0
# wrong CASE MESSAGE
wrong() {
  CUDA_HOST_SEED=$seed timeout 600 $mpirun "$program" $1 2>"$err"
  status=$?
  [ $status != 0 ] && [ $status != 124 ] && grep -q "$2" "$err" && return
  echo "FAIL: $1, seed $seed: exit status $status, no '$2'"
  cat "$err"
  failed=1
}
for seed in 0 1; do
  for what in group abort; do
    CUDA_HOST_SEED=$seed timeout 600 $mpirun "$program" $what || { echo "FAIL: $what, seed $seed"; failed=1; }
  done
  CUDA_HOST_TIMEOUT=2 wrong lonely "nothing has come from outside.*messages by NCCL"
  CUDA_HOST_TIMEOUT=2 wrong crossed "nothing has come from outside.*messages by NCCL"
  wrong sizes "ncclRecv of 32 bytes from rank 0 meets its ncclSend of 64"
  wrong hasty "ncclRecv on a communicator whose last call is in progress"
  wrong host "what ncclSend sends"
  wrong open "ncclCommAbort between ncclGroupStart and ncclGroupEnd"
  CUDA_HOST_DEVICES=1 wrong group "invalid usage: Duplicate GPU detected"
done
exit $failed
