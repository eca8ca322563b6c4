#!/bin/sh
# A missing, full, slow or corrupting offload place ends the run with a message, and no file remains there.
# faults.sh PDC INJECT [TARGET]
pdc=$1 inject=$2 target=${3:-c}
. "$(dirname "$0")/../launch.sh"
head -c 1000 "$top/tests/reference/text.txt" >text
level=-O0
. "$top/tests/spill/limits.sh"
limited plan.json 0 0 2 fc,proj -D width=64 "$top/tests/bits/tied.pdm"
build parts --plan plan.json -D width=64 "$top/tests/bits/tied.pdm"
mkdir place
chmod 700 place

# says TEXT OPTIONS...: fails with this message, on $ranks_of ranks.
ranks_of=1
says() {
  text=$1
  shift
  if launch "$ranks_of" parts --data text --steps 4 "$@" >out 2>&1; then
    complain "not noticed: $text"
  fi
  grep -q -- "$text" out || {
    complain "says something else than '$text':"
    head -5 out >&2
  }
  [ -z "$(ls -A place)" ] || complain "left behind: $(ls -A place)"
}

[ "$target" = cuda ] || says "pd: rank 0 (stage 0): --spill DIR, the offload directory, is missing: the plan offloads parameters"
says "cannot create a file in 'nowhere': No such file or directory" --spill nowhere
says "cannot create a file in 'text': Not a directory" --spill text
says "cannot create a file in '/proc': " --spill /proc
says "checkpoint-background needs all of the state resident" --spill place --checkpoint there --checkpoint-background

# A model that fits in memory after all takes the place that it was built with, and needs none.
build whole --schedule spilled --spill place --memory 1GiB --microbatch 2 -D width=64 "$top/tests/bits/tied.pdm"
launch 1 whole --data text --steps 1 --spill place >out 2>&1 || complain "--spill where nothing spills: $(head -3 out)"
$mpirun -n 1 whole/train --peak 1e9 --data text --steps 1 --spill nowhere >out 2>&1 || complain "--spill where nothing spills: $(head -3 out)"
grep -q '^pd: warning: --spill has no effect: the parameters of all ranks are resident' out || complain "not that no place is needed: $(head -3 out)"

# fault KIND TEXT OPTIONS...
fault() {
  export LD_PRELOAD="$inject" PD_SPILL_FAULT="$1"
  shift
  says "$@" --spill place
  unset LD_PRELOAD PD_SPILL_FAULT
}
fault room "'place' has no room for the .* MiB of offloaded blocks: No space left on device"
fault full:1 "cannot write .* to the spill file in 'place': No space left on device"
fault full:40 "cannot write .* to the spill file in 'place': No space left on device"
fault error:20 "cannot read .* from the spill file in 'place': Input/output error"
fault short:5 "cannot read .* from the spill file in 'place': the file is shorter than it was"
fault rotten:1 "cannot read .* from the spill file in 'place': the data differs from what was written"
fault rotten:50 "cannot read .* from the spill file in 'place': the data differs from what was written"
[ "$target" = cuda ] || fault slow:9 "the spill file in 'place' did not respond for . s (--timeout): waited to read the" --timeout 1

# Two runs in one place do not see each other, and one that is killed leaves nothing.
launch 1 parts --data text --steps 12 --seed 1 --spill place --save one &
first=$!
launch 1 parts --data text --steps 12 --seed 2 --spill place --save two || complain "two in one place: the second fails"
wait $first || complain "two in one place: the first fails"
launch 1 parts --data text --steps 12 --seed 1 --spill place --save again && cmp one again || complain "the first run's weights"
timeout -s KILL 2 "$work/parts/stage0" --data text --steps 100000000 --spill place --quiet >/dev/null 2>&1
[ -z "$(ls -A place)" ] || complain "a killed run leaves $(ls -A place)"

# Of a pipeline whose stages spill each rank has a file of its own, and one that fails ends all.
stages=2 ranks_of=2
limited plan.json 0 0 2 fc,/dropout,proj -D width=64 "$top/tests/bits/tied.pdm"
rm -rf parts
build parts --plan plan.json -D width=64 "$top/tests/bits/tied.pdm"
for PD_SPILL_RANK in 0 1; do
  export PD_SPILL_RANK
  fault room "pd: rank $PD_SPILL_RANK .*'place' has no room for the .* MiB of offloaded blocks: No space left on device" --comm mpi # which makes no other nameless file
  fault full:5 "pd: rank $PD_SPILL_RANK .*cannot write .* to the spill file in 'place': No space left on device"
  fault rotten:9 "pd: rank $PD_SPILL_RANK .*cannot read .* from the spill file in 'place': the data differs from what was written"
done
unset PD_SPILL_RANK
says "checkpoint-background needs all of the state resident" --spill place --checkpoint there --checkpoint-background
exit $failed
