# Non-finite numbers are never written to checkpoints or --save's files: neither weights of the last update, whose loss
# is not computed, nor running averages, which training does not read.  finite.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0
python3 - <<'P' || exit 1
import math, struct

def npy(path, descr, shape, raw):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %r, }" % (descr, shape)
    open(path, "wb").write(b"\x93NUMPY\x01\x00\x76\x00" + head.ljust(117).encode() + b"\n" + raw)

for name, big in (("good", 1.0), ("spike", 1e20)):
    x = [math.sin(i * i) * (big if i // 6 == 9 else 1) for i in range(6 * 32)]
    npy(name + ".npy", "<f4", (32, 6), struct.pack("<192f", *x))
npy("label.npy", "<i4", (32, 1), struct.pack("<32i", *(i * i % 3 for i in range(32))))
P
steps_in() { # a checkpoint's whole steps
  for step in "$1"/step-*; do
    [ -e "$step/manifest.json" ] && echo "${step##*-}"
  done | sort -n
}
for stages in 1 2; do
  build small$stages -n $stages --stages $stages --microbatch 2 "$top/tests/end_to_end/finite.pdm" || exit 1
  build huge$stages -n $stages --stages $stages --microbatch 2 -D "optimizer=sgd(lr = 3e38, momentum = 0.9, weight_decay = 1e4)" \
    "$top/tests/end_to_end/finite.pdm" || exit 1
  launch $stages small$stages --data good.npy label.npy --steps 8 --save kept || complain "finite numbers"
  cp kept before

  launch $stages small$stages --data spike.npy label.npy --steps 8 --checkpoint-every 1 --checkpoint spike$stages \
    --save kept 2>err && complain "a running average that is not finite: exit status 0"
  [ "$(grep -c "^pd: rank [01] (stage [01]): step [1-8]: 'weights.bn.running_var' is non-finite (element [0-7] is inf): 'spike$stages/step-.*' is not written" err)" = 1 ] ||
    { complain "a running average in a checkpoint: said was:"; cat err >&2; }
  at=$(sed -n "s/^pd: rank.*: step \([1-8]\): 'weights.*/\1/p" err)
  [ "$(steps_in spike$stages | tail -n 1)" = "$((at - 1))" ] && [ "$at" -gt 1 ] ||
    complain "step $at is not finite, and checkpoints are there of $(steps_in spike$stages)"
  launch $stages small$stages --data good.npy label.npy --steps 8 --checkpoint spike$stages --resume ||
    complain "the last good checkpoint does not resume"

  launch $stages small$stages --data spike.npy label.npy --steps 8 --save kept 2>err &&
    complain "a running average in --save: exit status 0"
  grep -q "step 8: 'bn.running_var' is non-finite (element [0-7] is inf): 'kept' is not written" err ||
    { complain "a running average in --save: said was:"; cat err >&2; }
  launch $stages huge$stages --data good.npy label.npy --steps 1 --checkpoint huge --save kept 2>err &&
    complain "a last update to infinity: exit status 0"
  grep -q "^pd: rank [01] (stage [01]): step 1: '\(weights\|moment1\).*' is non-finite (element [0-9]* is -*inf): 'huge/step-1/.*' is not written" err ||
    { complain "a last update to infinity: said was:"; cat err >&2; }
  [ -z "$(steps_in huge)" ] || complain "a checkpoint that is not finite is complete"
  cmp kept before || complain "what was there is not kept"
  [ -z "$(find . -name '*.new' -o -name '*.lock')" ] || complain "left: $(find . -name '*.new' -o -name '*.lock')"
  rm -rf huge
done
exit $failed
