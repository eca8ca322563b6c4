#!/bin/sh
# The order of models on one rank, which is deterministic with planned times: the turns equal those of the rule, which order.py
# computes from the planned times.   order.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
tied=$top/tests/bits/tied.pdm
build four --sharp -n 1 --microbatch 2 "$tied" "$tied" -D width=64 "$tied" -D width=96 "$tied" -D width=160 || exit 1

# turns STEPS...: emulates the models with so many updates each; their turns are as they should be.
turns() {
  set -- $(paste -d' ' names - <<END
$(printf '%s\n' "$@")
END
)
  options=
  said=$*
  while [ $# -gt 0 ]; do
    options="$options --for $1 --steps $2"
    shift 2
  done
  $mpirun -n 1 four/train --emulate --quiet --slice 0 --timeline timeline.json --steps 1 $options >out 2>&1 ||
    { cat out >&2; complain "four models on a rank"; }
  python3 "$here/order.py" four/plan.json timeline.json $said || complain "turns of $said"
}
sed -n 's/.*"name": "\([^"]*\)".*/\1/p' four/plan.json >names
turns 10 10 10 10
turns 2 9 5 20
turns 40 3 7 1
exit $failed
