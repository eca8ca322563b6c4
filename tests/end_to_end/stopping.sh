#!/bin/sh
# --stop-when: a training ends on all ranks after a validation that meets the rule, bit-identical to a training with this
# number of --steps; in a pipeline after the batches whose messages are in flight or awaited.   stopping.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
head -c 2000 "$top/tests/reference/text.txt" >text
level=-O0
build one -n 1 --schedule sequential --microbatch 2 "$top/tests/bits/tied.pdm" || exit 1
build two --stages 2 --split proj --schedule flush --microbatch 2 "$top/tests/bits/tied.pdm" || exit 1
build late --stages 2 --split proj --schedule 2bw --microbatch 2 "$top/tests/bits/tied.pdm" || exit 1

# stops UPDATES N DIR RULE: by the rule after so many updates, with the weights of so many steps, and a checkpoint of them.
stops() {
  updates=$1 n=$2 dir=$3 rule=$4
  rm -rf there "$dir.log"
  launch "$n" "$dir" --data text --validation text --validate-every 2 --seed 3 --steps 40 --stop-when "$rule" \
    --checkpoint there --log "$dir.log" --save stopped >out 2>&1 || { cat out >&2; complain "$dir by $rule"; }
  grep -q "\"event\":\"end\",\"steps\":$updates,.*\"stopped_by\":\"--stop-when\"" "$dir.log" ||
    complain "$dir, '$rule', does not end after $updates: $(tail -1 "$dir.log" | cut -c 1-60)"
  launch "$n" "$dir" --data text --steps "$updates" --seed 3 --save wanted || complain "$dir: $updates steps"
  cmp stopped wanted || complain "$dir by $rule: other weights than after $updates steps"
  "$pdc" checkpoint there >checked 2>&1 || complain "$dir: no sound checkpoint"
  grep -q "^ *$updates " checked || complain "$dir: no checkpoint of $updates: $(cat checked)"
}

stops 6 1 one "step > 5"
stops 7 2 two "step > 5"
stops 2 1 one "validation_loss > 0 and since_best < 1"
stops 8 1 one "validations >= 4 or validation_loss < 0"
stops 8 2 late "step >= 6"

# Never: all steps.
launch 1 one --data text --validation text --validate-every 2 --steps 5 --stop-when "validation_loss > best * 100" --log log ||
  complain "a rule that never holds"
grep -q '"event":"end","steps":5,' log || complain "a rule that never holds stops it"
grep -q stopped_by log && complain "a rule that never holds is said to have stopped it"

# What is no rule is refused before anything is computed.
launch 1 one --data text --validation text --steps 5 --stop-when "accuracy > 1" >out 2>&1 && complain "a rule over nothing"
grep -q "stop-when: 'accuracy > 1' is not a rule: unknown number at 'accuracy > 1'; numbers are step, validation_loss, best," out ||
  complain "says something else: $(head -3 out)"
launch 1 one --data text --steps 5 --stop-when "step > 1" >out 2>&1 && complain "a rule without validations"
grep -q "stop-when needs --validation" out || complain "says something else: $(head -3 out)"
exit $failed
