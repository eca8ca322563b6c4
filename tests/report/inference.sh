# Pages of runs that train nothing: of programs for inference, for training and for generating:  inference.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
head -c 1000 "$top/tests/reference/text.txt" >text.txt
set -- -D n_layer=2 -D n_head=2 -D n_embd=16 -D n_ctx=16 -D batch=4
build training --stages 2 "$@" "$top/models/gpt_mini.pdm" || exit 1
build inferring --infer --stages 2 --microbatch 1 "$@" "$top/models/gpt_mini.pdm" || exit 1
set -- -D n_layer=2 -D n_head=2 -D n_embd=16 -D n_ctx=16
build generating --generate --stages 2 "$@" "$top/models/gpt_mini.pdm" || exit 1
launch 2 training --steps 0 --save weights || exit 1
launch 2 training --data text.txt --init weights --evaluate --run evaluated || complain "train --evaluate --run"
$mpirun -n 2 inferring/infer --data text.txt --init weights --run inferred --quiet || complain "infer --run"
$mpirun -n 2 generating/generate --init weights --prompt ab --tokens 4 --trace generating/trace.json --quiet >said </dev/null ||
  complain "generate --trace"

for run in evaluated inferred generating inferring; do "$pdc" report $run || complain "pdc report $run"; done
python3 - <<'P' || complain "the pages"
import json

def data(run):
    return json.loads(open(f"{run}/report.html").read().split('id="data">')[1].split("</script>")[0])

def last(run, event):
    lines = [json.loads(line) for line in open(f"{run}/log.jsonl")]
    return [line for line in lines if line.get("event") == event][-1]

def works(trace):
    return {trace["works"][trace["bars"][i + 1]] for i in range(0, len(trace["bars"]), len(trace["fields"]))}

for run in "evaluated", "inferred":
    log = data(run)["log"]
    assert log["evaluation"] == last(run, "evaluation") and log["evaluation"]["loss"] > 0, log
    assert log["step"] == [] and log["end"] == last(run, "end"), log

# Programs that train trace an evaluation as a whole, those for inference its passes.
assert works(data("evaluated")["trace"]) == {"validation"}, data("evaluated")["trace"]
assert data("evaluated")["trace"]["shares"] == [None, None]
inferred = data("inferred")["trace"]
assert works(inferred) >= {"forward", "send", "receive"} and not works(inferred) & {"backward", "update", "validation"}
for s in inferred["shares"]:
    assert 0 < s["forward"] <= 1 and s["backward"] == 0 and s["updates"] == 0, s

# A timeline is predicted where the plan is of what ran: forward passes one behind the other.
predicted = data("inferred")["predicted"]
assert len(predicted["ranks"]) == 2 and all(s["forward"] > 0.5 for s in predicted["shares"]), predicted["shares"]
assert data("inferring")["predicted"] == predicted and data("inferring")["log"] is None
assert "did nothing but evaluate" in data("evaluated")["unpredicted"] and "predicted" not in data("evaluated")
generated = data("generating")
assert "before the next one is known" in generated["unpredicted"] and "predicted" not in generated
assert generated["plan"]["cache_bytes_a_token"] == 256 and generated["trace"]["total"] > 0
P

# There is no log of what was generated, and no folder to keep.
if $mpirun -n 2 generating/generate --init weights --prompt ab --run runs >said 2>&1 </dev/null; then complain "generate --run"; fi
grep -q -- '--run has no effect in generate' said || complain "generate --run: $(cat said)"
"$pdc" report nothing >said 2>&1 && complain "a page of nothing"
grep -q "'infer --run DIR'" said || complain "no advice about infer: $(cat said)"
exit $failed
