# Sourced by what launches programs: sets $mpirun and $with_open_mpi, which take `-x NAME=VALUE -n RANKS PROGRAM OPTIONS... : -n ..`.
# It is $ranks_launch (tests/ranks), whose launch takes an eighth of a second of processor time where Open MPI's takes half of one.
# It is Open MPI ($open_mpi, or mpirun) in tests that say launcher=mpirun before, as they are about what it does; in all with
# MPIRUN=1; and in each other test on one day in five.
of_test=$(for word in "$0" "$@"; do echo "${word##*/}"; done | cksum) # the same in every clone
with_open_mpi="timeout -k 5 900 ${open_mpi:-mpirun} --oversubscribe --bind-to none"
if [ "${launcher:-${MPIRUN:+mpirun}}" = mpirun ] || [ $(((${of_test%% *} + ${PDC_DAY:-0}) % 5)) = 0 ] || ! [ -x "$ranks_launch" ]; then
  mpirun=$with_open_mpi
else
  mpirun="timeout -k 5 900 $ranks_launch"
fi
