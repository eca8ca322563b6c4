#!/bin/sh
# A model that fails or is killed ends alone, and all other models keep their bits. A rank that dies ends the launch and leaves
# no process. Impossible combinations are refused before any computation.   failures.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
head -c 2000 "$top/tests/reference/text.txt" >text
tied=$top/tests/bits/tied.pdm

# says TEXT: what was last said has it.
says() {
  grep -q -- "$1" out || {
    complain "says something else than '$1':"
    head -8 out >&2
  }
}
# refused CODE OPTIONS...: pdc --sharp does not build this.
refused() {
  code=$1
  shift
  "$pdc" -S --sharp -o refused "$@" >out 2>&1 && complain "pdc --sharp $* is built"
  says "$code"
}
refused PD0711 -n 2 "$tied"
refused PD0711 "$tied" "$tied"
refused PD0711 -n 3 "$tied" "$tied"
refused PD0711 -n 2 --schedule 2bw "$tied" "$tied"
refused PD0711 -n 2 --stages 2 "$tied" "$tied"
refused PD0711 -n 2 --infer "$tied" "$tied"
refused PD0711 -n 2 --target cuda "$tied" "$tied"
refused PD0712 -n 2 "$tied" "$tied" -D no_such=1
refused PD0712 -n 2 "$tied" -D no_such=1 "$tied" -D nor_such=1 # built at once, told of one after the other
[ "$(sed -n "s/.*'\(no[r]*_such\)' is not an attribute.*/\1/p; s/.*the build of 'refused.\(tied[^']*\)' failed.*/\1/p" out | tr '\n' ' ')" = \
  "no_such nor_such tied-no_such=1 tied-nor_such=1 " ] || complain "two that cannot be built: $(cat out)"
refused PD0721 -n 2 "$tied" --name one "$tied" -D width=64 --name one
refused PD0721 -n 2 "$tied" --name a/b "$tied"
# A search as docs/guide/many-models.md begins with: short names, each model's -D in plan.json.
"$pdc" -S --sharp -o search -n 2 "$tied" "$tied" -D lr=1e-3 "$tied" -D lr=3e-3 -D optimizer.weight_decay=0.2 --name fast \
  "$tied" -D "optimizer=sgd(lr = 1e30)" -D clip_norm=0 >out 2>&1 || complain "a search over rates: $(cat out)"
[ "$(sed -n 's/.*"name": "\([^"]*\)".*/\1/p' search/plan.json | tr '\n' ' ')" = "tied tied-lr=1e-3 fast tied-2 " ] ||
  complain "names of a search: $(cat search/plan.json)"
grep -qF '"define": ["lr=3e-3", "optimizer.weight_decay=0.2"]' search/plan.json || complain "definitions: $(cat search/plan.json)"
grep -q 'lr = 0.003' search/fast/stage0.c || complain "-D lr=3e-3 is not in the program: $(grep -n 'lr = ' search/fast/stage0.c)"
"$pdc" "$tied" --name one >out 2>&1 && complain "--name without --sharp is taken"
says "is for '--sharp'"
"$pdc" "$tied" "$tied" >out 2>&1 && complain "two models without --sharp are built"
says "two models"

level=-O0
build three --sharp -n 2 --microbatch 2 "$tied" "$tied" -D "optimizer=sgd(lr = 1e30)" -D clip_norm=0 --name wild "$tied" -D width=64 ||
  exit 1
wild=wild

# launch_three OPTIONS...
launch_three() { $mpirun -n 2 three/train --data text --peak 1e9 --slice 0 "$@" >out 2>&1; }

launch_three --steps 9 --log log && complain "three models write one log"
says "--log 'log' is the same path for 'tied' and '$wild'"
launch_three --steps 9 --for nobody --seed 2 && complain "--for nobody"
says "no model has this name"

# One diverges: its launch has failed, and the others are what they are alone. A place to spill to is taken, and not needed.
launch_three --steps 9 --spill nowhere --save '{model}.weights' && complain "a model that diverges is not noticed"
says "$wild: pd: rank 0 (stage 0): step .* is non-finite"
says "model '$wild' failed; the other models continue"
says "$wild .*, failed"
for model in tied tied-width=64; do
  OMPI_MCA_ess_singleton_isolated=1 "three/$model/stage0" --data text --steps 9 --peak 1e9 --quiet --save alone
  cmp alone "$model.weights" || complain "'$model' beside one that diverges has other weights than alone"
done

# One has no weights, and never waits for a rank.
launch_three --steps 3 --for tied-width=64 --init nowhere && complain "missing weights are not noticed"
says "tied-width=64: pd: .*nowhere"
says " tied  *3 of 3 updates"

# process_of NAME: the process of a model.
process_of() {
  for p in /proc/[0-9]*; do
    [ "$(readlink "$p/exe")" = "$work/three/$1/stage0" ] && echo "${p#/proc/}"
  done
}
# await COMMAND...: until it succeeds, ten seconds at most.
await() {
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    "$@" && return
    sleep 0.5
  done
  complain "waited in vain for: $*"
}
has_log() { [ "$(cat "$1.long" 2>/dev/null | wc -l)" -ge 9 ]; }
is_gone() { [ -z "$(process_of "$1")" ]; }

# One is killed.
launch_three --steps 1000000 --log '{model}.long' --for 'tied-width*' --steps 200 --save width &
await has_log tied
kill -KILL $(process_of tied)
await is_gone tied
kill -KILL $(process_of "$wild") 2>/dev/null
wait $! && complain "a model that is killed is not noticed"
says "model 'tied' was ended by signal 9"
[ -s width ] || complain "the third does not go on to its end"

# A rank is killed: all end, and none is left.
rm -f ./*.long
launch_three --steps 1000000 --log '{model}.long' &
await has_log tied
for p in /proc/[0-9]*; do
  [ "$(readlink "$p/exe")" = "$work/three/stage0" ] && last=${p#/proc/}
done
kill -KILL "$last"
wait $! && complain "a rank that is killed is not noticed"
for model in tied "$wild" tied-width=64; do
  await is_gone $model
done

# A signal stops them, each with its checkpoint.
rm -f ./*.long
launch_three --steps 1000000 --log '{model}.long' --checkpoint '{model}.kept' --for "$wild" --steps 1 &
launched=$!
await has_log tied
await has_log tied-width=64
for p in /proc/[0-9]*; do
  [ "$(readlink "$p/exe")" = "$work/three/stage0" ] && kill -USR2 "${p#/proc/}"
done
wait $launched && complain "a launch that is stopped ends with 0"
says "tied: pd: .*SIGUSR2: stopped after update"
for model in tied tied-width=64; do
  "$pdc" checkpoint "$model.kept" >checked 2>&1 || complain "'$model' has no sound checkpoint: $(cat checked)"
done
exit $failed
