# Pages about plans that were not run, of several models, schedules and kinds of programs:  plan.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
models=$top/models
small="-D n_layer=2 -D n_head=2 -D n_embd=16 -D n_ctx=16 -D batch=8"

# page NAME OPTIONS... MODEL: makes NAME.html and checks it
page() {
  name=$1
  shift
  "$pdc" plan --report -o "$name.html" "$@" >said 2>&1 || complain "$name: $(cat said)"
  grep -qx "page: $name.html" said || complain "$name: its place is not told: $(cat said)"
  python3 "$here/check_plan.py" "$pdc" "$name.html" "$@" || complain "the page: $*"
}
page alone "$models/mlp.pdm"
page replicated -n 4 --replicas 2 --schedule flush "$models/mlp.pdm"
page usual -n 4 "$models/mlp.pdm"
# shellcheck disable=SC2086
{
  page chunks -n 2 --schedule interleaved --memory 100000000 $small "$models/gpt_mini.pdm"
  page split -n 2 --schedule zb_h1 $small "$models/gpt_mini.pdm"
  page open -n 2 --schedule auto $small "$models/gpt_mini.pdm"
  page inferring -n 2 --infer $small "$models/gpt_mini.pdm"
  page generating -n 2 --generate -D n_layer=2 -D n_head=2 -D n_embd=16 -D n_ctx=16 "$models/gpt_mini.pdm"
  "$pdc" plan --emit plan --split after\ fc "$models/mlp.pdm" >two.json
}
# A shard group's ranks have as much of the machine's memory as the stages of a pipeline on as many ranks.
page sharing -n 4 --tensor 2 -D n_layer=1 -D n_ctx=32 "$models/gpt_mini.pdm"
"$pdc" plan --report -o apart.html -n 4 --stages 4 "$models/mlp.pdm" >said 2>&1 || complain "apart: $(cat said)"
python3 - <<'P' || complain "the memory of shard groups"
import json
def limits(name):
    return set(json.loads(open(name).read().split('id="data">')[1].split("</script>")[0])["limits"])
assert limits("sharing.html") == limits("apart.html"), (limits("sharing.html"), limits("apart.html"))
P
page taken --plan two.json "$models/mlp.pdm"

# Many ranks: the timeline has a row a stage; what takes long is left out, and told of.
"$pdc" plan --report --replicas 32,32,32 --schedule flush -D batch=960 "$models/mlp.pdm" >said 2>&1 || complain "96 ranks: $(cat said)"
python3 - <<'P' || complain "the page of 96 ranks"
import json
data = json.loads(open("mlp.plan.html").read().split('id="data">')[1].split("</script>")[0])
assert data["first_replicas"] and len(data["predicted"]["ranks"]) == 3 and data["by_ranks"][-1]["ranks"] == 96
assert len(data["device_of"]) == 96 and len(data["predicted"]["bars"]) < 9 * 20000
left = {r["label"] for r in data["schedules"] if "left out" in r.get("why", "")}
assert {"interleaved", "zb_h1", "pipedream", "sequential (naive)"} == left, left
P

# On a cluster: two servers of eight, of the 128 that it has.
"$pdc" plan --report --target cuda --cluster dgx_a100 -n 16 --schedule flush -D batch=160 "$models/mlp.pdm" >said 2>&1 ||
  complain "a cluster: $(cat said)"
python3 - <<'P' || complain "the page of a cluster"
import json
data = json.loads(open("mlp.plan.html").read().split('id="data">')[1].split("</script>")[0])
cluster = data["cluster"]
assert cluster["given"] and cluster["name"] == "dgx_a100" and cluster["levels"][0]["count"] == 8, cluster
assert len(set(data["device_of"])) == len(data["device_of"]) and max(data["device_of"]) < 1024, data["device_of"]
assert data["by_ranks"][-1]["ranks"] == 1024 and data["asked"] == 16, data["by_ranks"][-1]
P

# The default place is the current folder; what is there is replaced only by a whole page.
mkdir elsewhere
(cd elsewhere && "$pdc" plan --report -n 2 "$models/mlp.pdm" >/dev/null) || complain "the default place"
[ "$(ls elsewhere)" = mlp.plan.html ] || complain "the default place: $(ls elsewhere)"
cp elsewhere/mlp.plan.html kept
# fails TEXT COMMAND...: with this message, status 1, and nothing left in elsewhere but the earlier page
fails() {
  text=$1
  shift
  "$@" >said 2>&1
  [ $? = 1 ] || complain "$*: not refused"
  grep -qF "$text" said || complain "$*: '$text' is not in: $(cat said)"
  [ "$(ls -A elsewhere)" = mlp.plan.html ] && cmp -s kept elsewhere/mlp.plan.html || complain "$*: left $(ls -A elsewhere)"
}
fails "cannot write 'nowhere/page.html': No such file or directory" \
  "$pdc" plan --report -o nowhere/page.html "$models/mlp.pdm"
fails "cannot write 'elsewhere': Is a directory" "$pdc" plan --report -o elsewhere "$models/mlp.pdm"
limited() { (trap '' XFSZ && ulimit -f 16 && exec "$@"); }
fails "cannot write 'elsewhere/mlp.plan.html': File too large" \
  limited "$pdc" plan --report -n 4 -o elsewhere/mlp.plan.html "$models/mlp.pdm"
if [ "$(id -u)" != 0 ]; then
  chmod a-w elsewhere
  fails "cannot write 'elsewhere/mlp.plan.html': Permission denied" \
    "$pdc" plan --report -o elsewhere/mlp.plan.html "$models/mlp.pdm"
  chmod u+w elsewhere
fi
fails "PD0504" "$pdc" plan --report -n 3 --replicas 2,2 -o elsewhere/mlp.plan.html "$models/mlp.pdm"

# Names are texts on the page, whatever they hold.
mkdir '<'
hostile='</script><img src=x onerror=alert(1)><script>alert(2)</script>.json'
mkdir -p "$(dirname "$hostile")"
"$pdc" profile --table -o "$hostile" "$models/mlp.pdm" >said 2>&1 || complain "a profile: $(cat said)"
grep -qE ': products at [0-9.]+ GFLOP/s in f32, memory at [0-9.]+ GB/s \(measured' said && grep -q '^weight_gradient ' said ||
  complain "pdc profile --table: $(cat said)"
page hostile -n 1 --profile "$hostile" "$models/mlp.pdm"
grep -qF 'u003c/script>\u003cimg' hostile.html || complain "the profile's name is not on the page"

# usage TEXT ARGUMENTS...
usage() {
  text=$1
  shift
  "$pdc" "$@" >said 2>&1
  [ $? = 2 ] && grep -qF -- "$text" said || complain "$*: $(cat said)"
}
usage "--report is for 'pdc plan'" --report "$models/mlp.pdm"
usage "leave one of them out" plan --report --compare "$models/mlp.pdm"
usage "leave --emit out" plan --report --emit plan "$models/mlp.pdm"
usage "leave --stop-after out" plan --report --stop-after plan "$models/mlp.pdm"
usage "--table is for 'pdc profile'" plan --table "$models/mlp.pdm"
usage "leave -S out" profile --table -S "$models/mlp.pdm"
usage "--report needs a model" plan --report --profile x.json
exit $failed
