# Damaged, renamed and incomplete checkpoints: each is reported, and the newest valid one is used.
. "$(dirname "$0")/common.sh"
pdc=$3
data="--data x.npy t.npy --quiet --peak 1e9"

# edit.py DAMAGE: does something to again/step-20, a checkpoint of one shard or of two.
cat >edit.py <<'P'
import glob, json, os, shutil, struct, sys

step = "again/step-20"
shard = sorted(glob.glob(step + "/shard-*"))[-1]

def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + n]), data[8 + n:]

def write(path, header, payload):
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + payload)

def patch(path, at, new):
    data = bytearray(open(path, "rb").read())
    at = at if at >= 0 else len(data) + at
    data[at:at + len(new)] = new
    open(path, "wb").write(data)

def metadata(name, value):
    for path in glob.glob(step + "/shard-*"):
        header, payload = read(path)
        header["__metadata__"][name] = value
        write(path, header, payload)

def as_before():  # as versions without manifests left it
    os.remove(step + "/manifest.json")
    for path in glob.glob(step + "/shard-*"):
        header, payload = read(path)
        del header["__metadata__"]["manifest"]
        write(path, header, payload)

def older():  # one tensor of ten updates before
    header, payload = read(shard)
    first, end = header["moment1.last"]["data_offsets"]
    old = read(shard.replace("step-20", "step-10"))[1]
    write(shard, header, payload[:first] + old[first:end] + payload[end:])

def dropped():  # the older version of one parameter
    header, payload = read(shard)
    del header["previous.last"]
    write(shard, header, payload)

def overlapping():
    header, payload = read(shard)
    header["moment2.last"]["data_offsets"] = header["moment1.last"]["data_offsets"]
    write(shard, header, payload)

def manifest(change):
    path = step + "/manifest.json"
    text = open(path).read()
    open(path, "w").write(change(text))

damage = {
    "zeroed": lambda: patch(shard, -64, bytes(64)),
    "bit": lambda: patch(shard, -7, bytes([open(shard, "rb").read()[-7] ^ 16])),
    "older": older,
    "dropped": dropped,
    "overlapping": overlapping,
    "samples": lambda: metadata("samples", "-1000"),
    "cut": lambda: os.truncate(shard, os.path.getsize(shard) - 4),
    "longer": lambda: open(shard, "ab").write(bytes(4)),
    "gone": lambda: os.remove(shard),
    "empty": lambda: os.truncate(shard, 0),
    "step": lambda: shutil.copy(shard.replace("step-20", "step-10"), shard),
    "edited": lambda: manifest(lambda text: text.replace('"samples":\t', '"samples":\t1')),
    "half": lambda: manifest(lambda text: text[:len(text) // 2]),
    "blank": lambda: manifest(lambda text: ""),
    "renamed": lambda: os.rename(step, "again/step-80"),
    "misnamed": lambda: os.rename(step, "again/step-020"),
    "beyond all": lambda: os.rename(step, "again/step-99999999999999999999"),
    "unfinished": lambda: os.remove(step + "/manifest.json"),
    "before": as_before,
    "before, renamed": lambda: (as_before(), os.rename(step, "again/step-80")),
    "before, samples -1000": lambda: (as_before(), metadata("samples", "-1000")),
    "before, samples 9e18": lambda: (as_before(), metadata("samples", "9000000000000000000")),
    "before, samples garbage": lambda: (as_before(), metadata("samples", "16x")),
}
damage[sys.argv[1]]()
P
one 1 $data --steps 24 --save whole.safetensors || complain "a run that is not interrupted"
one 1 $data --steps 20 --checkpoint state --checkpoint-every 10 || complain "a run with checkpoints"
"$pdc" checkpoint state >listed || complain "pdc checkpoint: $(cat listed)"
[ "$(grep -c ' sound$' listed)" = 2 ] && grep -q '^ *20 .* sound$' listed && grep -q 'goes on from step 20$' listed ||
  complain "pdc checkpoint lists: $(cat listed)"

# resumed NAME FROM SAID COUNT RANKS: again/ with that damage resumes from step FROM; what is said of it, so many lines of pd.
resumed() {
  $5 1 $data --steps 24 --checkpoint again --resume --log log --save again.safetensors >out 2>err || complain "$1: $(cat err)"
  grep -q "\"first_step\":$2" log || complain "$1: not resumed from step $2"
  cmp again.safetensors whole.safetensors || complain "$1: other weights"
  grep -q "$3" err || complain "$1: expected '$3', not: $(cat err)"
  [ "$(grep -c '^pd:' err)" = "$4" ] || complain "$1: said: $(cat err)"
}
# damage NAME FROM
damage() {
  rm -rf again log && cp -r "$2" again && python3 edit.py "$1" || complain "$1"
}
# damaged NAME SAID [STEP [FROM RANKS]]: passed over for this reason, which pdc gives, too.
damaged() {
  damage "$1" "${4:-state}"
  "$pdc" checkpoint again >listed 2>err && complain "$1: pdc finds nothing"
  grep -q "error: 'again/.*$2.*PD0621" err && grep -q 'goes on from step 10$' listed || complain "$1: pdc says: $(cat listed err)"
  resumed "$1" 10 "^pd: warning: 'again/step-${3:-20}' is skipped: .*again/step-${3:-20}/.*$2" 1 "${5:-one}"
}
shard=shard-0-of-1.safetensors
for case in zeroed bit older; do damaged $case "$shard.*its tensors are damaged"; done
for case in dropped cut longer; do damaged $case "$shard.*it has [0-9]* bytes, but"; done
damaged gone "$shard.*No such file"
damaged empty "$shard.*it is empty"
for case in overlapping samples step; do damaged $case "$shard.*its header is damaged"; done
for case in edited half; do damaged $case "manifest.json.*it is damaged"; done
damaged blank "manifest.json.*it is empty"
damaged renamed "manifest.json.* holds step 20: the directory was renamed" 80

# Names that are no step's but look like one.
for name in misnamed:step-020 "beyond all:step-99999999999999999999"; do
  damage "${name%:*}" state
  "$pdc" checkpoint again >listed 2>err && complain "$name: pdc finds nothing"
  grep -q "error: 'again/${name#*:}': the directory was renamed" err || complain "$name: pdc says: $(cat err)"
  resumed "$name" 10 "^pd: warning: 'again/${name#*:}' is skipped: the directory was renamed" 1 one
done

# Two ranks, each of which verifies one shard; a plan of one stage goes on from two shards.
two 1 $data --steps 20 --checkpoint pair --checkpoint-every 10 || complain "two ranks with checkpoints"
damaged bit "shard-1-of-2.safetensors.*its tensors are damaged" 20 pair two
damaged bit "shard-1-of-2.safetensors.*its tensors are damaged" 20 pair one
damaged gone "shard-1-of-2.safetensors.*No such file" 20 pair two

# A step that a killed run did not finish is no damage; nor is what earlier versions wrote, unless it shows.
data="--data x.npy t.npy --peak 1e9"
damage unfinished state
"$pdc" checkpoint again >listed && grep -q '^ *20 .*not finished' listed || complain "unfinished: $(cat listed)"
resumed unfinished 10 "^pd: note: 'again/step-20' is skipped: it was not finished" 1 one
damage before state
"$pdc" checkpoint again >listed && grep -q '^ *20 .*without a manifest' listed || complain "before: $(cat listed)"
resumed before 20 "^pd: note: step 20 in 'again' cannot be verified: it has no manifest, as in earlier versions" 1 one
for samples in -1000 9e18 garbage; do
  damage "before, samples $samples" state
  resumed "before, samples $samples" 10 "^pd: warning: .*$shard': its 'samples' are '.*', which does not match 20 updates" 1 one
done
damage "before, renamed" state
resumed "before, renamed" 10 "^pd: warning: .*step-80/$shard' holds step '20': the directory was renamed" 1 one

# Where none is sound nothing is started, and nothing written over.
damage bit state
rm -r again/step-10
echo kept | tee log >kept_log
refused "no sound step" "0 (stage 0): 'again' holds no valid checkpoint; the newest: 'again/step-20/$shard': its tensors" \
  one 1 $data --steps 24 --checkpoint again --resume --log log
cmp log kept_log || complain "the log of a training that does not go on has changed"
"$pdc" checkpoint again 2>err | grep -q 'goes on' && complain "pdc goes on from a damaged step"
grep -q "PD0620" err || complain "pdc: $(cat err)"
"$pdc" checkpoint absent 2>err && complain "pdc lists a directory that is not there"
grep -q "cannot read the directory 'absent': No such file or directory.*PD0620" err || complain "absent: $(cat err)"
refused "no --resume" "0 (stage 0): 'state' holds a checkpoint of step 20. help: give --resume or another directory" \
  one 1 $data --steps 24 --checkpoint state

# What killed processes left half written is removed by the next run, also where another process has their number now;
# what a process writes, and so has locked, is not.
rm -rf again && cp -r state again
for left in again/step-20/$shard again/step-10/manifest.json again/shared saved; do : >"$left.99999999.new"; done
: >"again/best.json.$$.new"
flock "again/step-20/$shard.1.new" sleep 60 & running=$!
until [ -e "again/step-20/$shard.1.new" ]; do sleep 0.1; done
one 1 $data --steps 24 --checkpoint again --resume --save saved --quiet || complain "a run beside what others left"
[ "$(find . -name '*.new')" = "./again/step-20/$shard.1.new" ] || complain "left: $(find . -name '*.new')"
kill $running
exit $failed
