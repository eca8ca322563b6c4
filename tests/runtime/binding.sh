# Every rank with more threads than processors warns at start, also with --quiet; a rank with enough processors does not.
# Settings that OpenMP's library aborts on do not end a rank.
launcher=mpirun
. "$(dirname "$0")/common.sh"
data="--data x.npy t.npy --quiet --peak 1 --steps 1"
first=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')

# says THREADS RANKS...: exactly the ranks named are told that they run so many threads on one processor.
says() {
  threads=$1
  shift
  for rank in "$@"; do
    echo "pd: warning: rank $rank runs $threads threads but is bound to 1 processor. help: launch with mpirun --bind-to none, or --map-by slot:PE=$threads"
  done | cmp -s - err || complain "expected warnings of ranks '$*', not: $(cat err)"
}
# bound THREADS: one rank on one processor.
bound() {
  OMP_NUM_THREADS=$1 timeout 600 $mpirun -n 1 taskset -c "$first" "$programs/chain_1_0_0" $data 2>err || complain "$1 threads, bound: $(cat err)"
}
bound 2 && says 2 0
bound 1 && says 1
# Open MPI 5 complains where there is no network.
export OMP_NUM_THREADS=2 OMPI_MCA_btl=^tcp
if [ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ]; then
  one 0 $data 2>err || complain "two threads on two processors: $(cat err)"
  says 2
  # One program for both: mpirun of Open MPI 5.0.7 crashes where it is given two.
  printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] || exec taskset -c %s "%s" "$@"\nexec "%s" "$@"\n' \
    "$first" "$programs/chain_2_1_0" "$programs/chain_2_0_0" >second
  chmod +x second
  timeout 600 $mpirun -n 2 ./second $data 2>err || complain "a second rank that is bound: $(cat err)"
  says 2 1
fi

# OpenMP's library aborts on these. A blank setting means none, a setting that is not a number gets a warning, and /dev/shm is
# not needed.
for value in '' ' '; do
  OMP_NUM_THREADS=$value one 0 $data 2>err || complain "OMP_NUM_THREADS='$value': $(cat err)"
  [ ! -s err ] || complain "OMP_NUM_THREADS='$value': $(cat err)"
done
for value in 0 many 2,x; do
  OMP_NUM_THREADS=$value one 0 $data 2>err || complain "OMP_NUM_THREADS='$value': $(cat err)"
  [ "$(cat err)" = "pd: warning: OMP_NUM_THREADS=$value is not a number of threads and is ignored" ] ||
    complain "OMP_NUM_THREADS='$value': $(cat err)"
done
if unshare -m mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
  for how in ro size=4k; do
    unshare -m sh -c 'mount -t tmpfs -o "$0" tmpfs /dev/shm; cat /dev/zero >/dev/shm/filled 2>&1; exec "$@"' $how \
      timeout 600 $mpirun -n 1 "$programs/chain_1_0_0" $data >err 2>&1 || complain "/dev/shm, $how: $(cat err)"
  done
else
  echo "no file system can be mounted here: a full /dev/shm is not tried"
fi
exit $failed
