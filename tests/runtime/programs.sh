# Failures of compiled models, and models with unusual exchanges between stages:  programs.sh PDC LATE
# LATE: late.c, built.
pdc=$1 late=$2
. "$(dirname "$0")/../launch.sh"
level=-O0
python3 - <<'P' || exit 1
import math, struct

def npy(path, f):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': (37, 16), }"
    data = [f(i) for i in range(37 * 16)]
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00\x76\x00" + head.ljust(117).encode() + b"\n" + struct.pack("<592f", *data))

npy("x.npy", lambda i: math.sin(i * i))
npy("y.npy", lambda i: math.cos(i * i))
P
settings='batch = 8; optimizer = adamw(lr = 1e-2, weight_decay = 0.1); lr_schedule = constant();'

# run STAGES DIR OPTIONS...: seven updates; leaves DIR.jsonl, DIR.figures, DIR.safetensors.
run() {
  n=$1 dir=$2
  shift 2
  launch "$n" "$dir" --data x.npy y.npy --validation y.npy x.npy --validate-every 2 --steps 7 --timeout 300 \
    --log "$dir.jsonl" --save "$dir.safetensors" "$@" || return
  figures "$dir.jsonl" >"$dir.figures"
}

# one_message PATTERN COMMAND...: fails, and says this alone.
one_message() {
  pattern=$1
  shift
  "$@" >out 2>err && complain "'$pattern': no failure"
  [ "$(grep -c '^pd: rank' err)" = 1 ] && grep -q "^pd: rank $pattern" err ||
    { complain "expected '$pattern' alone in:"; cat err >&2; }
}

# ---- parameters that several stages hold ---------------------------------------------------------------
# shared: fc1 and fc2 are used three times and twice, fc1 from the first stage on, fc2 from the middle on.
# read: the last stage reads fc1.bias, but gives it no gradient.
cat >shared.pdm <<P
use nn;
model shared(width = 16) {
  input  x[width];
  target y[width];
  b = fc1: linear(tanh(x * 2), width);
  c = fc2: linear(tanh(b), width);
  d = fc1(tanh(c));
  e = fc3: linear(tanh(d), width);
  f = fc1(tanh(e));
  loss mse_loss(fc2(tanh(f)), y);
}
train shared { $settings clip_norm = 0.1; pipeline = 2bw; }
P
cat >read.pdm <<P
use nn;
model read(width = 16) {
  input  x[width];
  target y[width];
  a = fc1: linear(x, width);
  b = fc2: linear(tanh(a), width);
  c = fc3: linear(tanh(b), width);
  loss mse_loss(c + c * detach(fc1.bias), y);
}
train read { $settings clip_norm = 0; pipeline = 2bw; }
P
# The least microbatches that 2BW works with are one less than stages.
for plan in "shared 2 8" "shared 3 4" "shared 5 2" "read 2 4" "read 3 4"; do
  set -- $plan
  for schedule in 2bw flush; do
    taken || continue
    build one -n 1 --stages 1 --microbatch "$3" --schedule $schedule "$1.pdm" && run 1 one &&
      build many -n "$2" --stages "$2" --microbatch "$3" --schedule $schedule "$1.pdm" && run "$2" many ||
      { complain "$plan $schedule does not train"; continue; }
    cmp one.figures many.figures || complain "$plan $schedule: other losses than on one stage"
    cmp one.safetensors many.safetensors || complain "$plan $schedule: other weights than on one stage"
  done
done
# Two replicas of each stage: the bytes of one stage of two replicas.
for schedule in 2bw flush; do
  build one -n 2 --stages 1 --replicas 2 --microbatch 2 --schedule $schedule shared.pdm && run 2 one &&
    build many -n 4 --stages 2 --replicas 2 --microbatch 2 --schedule $schedule shared.pdm && run 4 many ||
    { complain "replicas, $schedule: does not train"; continue; }
  cmp one.figures many.figures || complain "replicas, $schedule: other losses than on one stage"
  cmp one.safetensors many.safetensors || complain "replicas, $schedule: other weights than on one stage"
done
# Two updates' exchanges under way at once, seen to complete in any order.
build late -n 4 --stages 3 --replicas 1,1,2 --microbatch 1 --schedule pipedream -D batch=2 -D vertical_sync=true \
  shared.pdm && run 4 late || complain "pipedream with replicas"
mv late.figures early.figures
for seed in 1 2 3; do
  LATE_SEED=$seed LD_PRELOAD=$late run 4 late && cmp late.figures early.figures || complain "messages seen late"
done
build many -n 3 --stages 3 --microbatch 2 --schedule flush shared.pdm && run 3 many || complain "three stages"
# Messages of which MPI buffers nothing.
launch=$mpirun
mpirun="$with_open_mpi --mca pml ob1 --mca btl self,vader --mca btl_vader_eager_limit 128"
mv many.figures eager.figures
run 3 many && cmp many.figures eager.figures || complain "messages without buffering"
mpirun=$launch

# ---- figures that are not finite ---------------------------------------------------------------------
# The loss is finite, root's gradient is 0 / 0; the next loss is not finite either.
cat >root.pdm <<P
use nn;
model root(width = 16) {
  input  x[width];
  target y[width];
  param root[width] = zeros;
  a = fc1: linear(x, width) + sqrt(root * root);
  b = fc2: linear(tanh(a), width);
  loss mse_loss(fc3: linear(tanh(b), width), y);
}
train root { $settings clip_norm = 0; pipeline = 2bw; }
P
for plan in "1 flush 0" "2 flush 0 --split fc2" "2 2bw 0 --split fc2" "3 2bw 0 --split fc2,fc3" \
  "3 2bw 1 --split fc2,fc3" "2 flush 1 --split fc2"; do
  taken || continue
  set -- $plan
  ranks=$1 schedule=$2 clip=$3
  shift 3
  build root -n "$ranks" --stages "$ranks" --microbatch 2 --schedule "$schedule" -D "clip_norm=$clip" "$@" root.pdm || continue
  rm -rf state
  one_message "0 (stage 0): step 1: the gradient of 'root' is non-finite" \
    run "$ranks" root --checkpoint state --checkpoint-every 1
  [ "$(find state -name '*.safetensors')" ] && complain "$plan: a checkpoint of weights that are not finite"
done

build root -n 3 --stages 2 --replicas 2,1 --split fc2 --microbatch 2 --schedule 2bw root.pdm &&
  one_message "0 (stage 0): step 1: the gradient of 'root' is non-finite" run 3 root

# Weights that are not finite make every replica's loss bad at once: the lowest reports it.
for plan in "2 2 1 flush" "1,2 3 2 2bw"; do
  set -- $plan
  build wild -n "$2" --stages "$3" --replicas "$1" --microbatch 1 --schedule "$4" \
    -D "optimizer=sgd(lr = 1e30)" shared.pdm &&
    one_message "$(($2 - 2)) (stage $(($3 - 1))): step [0-9]*: the loss of microbatch [0-9]* is non-finite" run "$2" wild
done

# ---- programs and states of two models -----------------------------------------------------------------
two="-n 2 --stages 2 --microbatch 2 --schedule flush"
build a $two read.pdm && build b $two -D "optimizer=adamw(lr = 2e-2)" read.pdm && build c $two shared.pdm &&
  build d $two -D "optimizer=sgd(lr = 1e-2, momentum = 0.9)" read.pdm || exit 1
run 2 a --checkpoint state || complain "a run with a checkpoint"
one_message "0 (stage 0): the checkpoint in 'state' is of the optimizer 'adamw', not 'sgd_momentum'" run 2 d --checkpoint state --resume
one_message "0 (stage 0): the checkpoint in 'state' is of the model 'read'" run 2 c --checkpoint state --resume
cp b/stage1 a/stage1
one_message "0 (stage 0): the plan of rank 1 (.*) differs from the plan of rank 0" run 2 a
exit $failed
