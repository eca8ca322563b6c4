# Training runs by their bytes: losses, norms and final weights. In bf16 with of_c=bf16, also of the residual stream with residual=bf16; with EVERY=N of the runs that must
# give the same bytes only each N-th (taken, sample.sh).
. "$(dirname "$0")/../launch.sh"
model=$here/${model:-tied}.pdm
head -c 1000 "$top/tests/reference/text.txt" >text

# bytes NAME RANKS: trains eight updates with what `build` left in NAME; leaves NAME.bytes. Every second launch has its
# messages by MPI, as between machines.
launches=0
bytes() {
  launches=$((launches + 1)) comm=
  [ $((launches % 2)) = 0 ] && comm="--comm mpi"
  export CUDA_HOST_SEED=$launches # of programs on tests/cuda/host: the streams' order
  if ! launch "$2" "$1" --data text --steps 8 --seed 3 $comm --log log --save weights; then
    complain "$1 does not train"
    return 1
  fi
  { figures log; sha256sum <weights; } >"$1.bytes"
  rm -f log weights
}

# whole NAME RANKS OPTIONS...: the run whose bytes are wanted of those that follow. It is made when the first of them is.
whole() {
  whole=$1 whole_ranks=$2
  shift 2
  whole_options=$*
  rm -f "$whole.bytes"
}

make_whole() {
  [ ! -f "$whole.bytes" ] || return 0
  level=
  # shellcheck disable=SC2086  # the options are words
  build "$whole" -n "$whole_ranks" $whole_options "$model" && bytes "$whole" "$whole_ranks"
  rm -rf "$whole"
}

count=0

# trained NAME RANKS OPTIONS...: gives the same bytes, where the sample has it.
trained() { ! taken || compared "$@"; }

# compared NAME RANKS OPTIONS...: gives the same bytes, and gives them again. Two of three are compiled by clang -O0,
# the third as the whole is, by -O3: bits do not depend on it.
compared() {
  name=$1 n=$2
  shift 2
  make_whole || return
  count=$((count + 1)) level=-O0
  [ $((count % 3)) = 0 ] && level=
  build "$name" -n "$n" "$@" "$model" && bytes "$name" "$n" || return
  cmp "$name.bytes" "$whole.bytes" || complain "$name: other bytes than $whole"
  if [ "${times:-1}" = 2 ]; then
    bytes "$name" "$n" && cmp "$name.bytes" "$whole.bytes" || complain "$name: other bytes in its second run"
  fi
  rm -rf "$name"
}

# At the end of a test: a sample that took nothing has shown nothing.
finish() {
  [ $count -gt 0 ] || complain "nothing was trained"
  exit $failed
}
