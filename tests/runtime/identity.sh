# The identity of model and training in a checkpoint:  identity.sh PDC
# The digest of the computation is equal for all plans and targets, and differs for other computations. A checkpoint of
# another computation is refused; other settings and other data are noted.
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
cat >net.pdm <<'P'
use transformer;
model net(n_head = 2, causal = true, p = 0.1, act = 1) {
  input  tokens[16] : token(64);
  target next[16]   : token(64);
  x = wte: embedding(tokens, 64, 32, init = normal(0.02));
  x = dropout(x, p);
  for i in 0..2 {
    x = h[i]: transformer_block(x, n_head, causal = causal, p_drop = p, init_proj = normal(0.02));
  }
  x = ln_f: layer_norm(x);
  loss cross_entropy(x @ wte.weight.T * act, next);
}
train net { batch = 8; optimizer = adamw(lr = 1e-3); lr_schedule = constant(); clip_norm = 1; pipeline = flush; }
P
# table NAME OPTIONS...: this table of the program.
table() {
  name=$1
  shift
  "$pdc" --emit source "$@" net.pdm 2>err | awk "/const char .const $name/ { n++ } n == 1; n == 1 && /};/ { n = 2 }"
}
table function --stages 1 >function
[ "$(grep -o '"[^"]*", "[0-9a-f]\{16\}"' function | wc -l)" -ge 5 ] && grep -q '"h.1"' function || complain "function: $(cat function)"
for plan in "-n 2 --stages 2" "-n 3 --stages 3" "-n 2 --stages 1 --replicas 2" "--target cuda --precision bf16" \
  "-D batch=16" "-D p=0" "-D p=0.3" "-D clip_norm=0 -D lr_schedule=inverse_sqrt(warmup=3)" "--schedule gpipe --recompute on"; do
  table function $plan >other
  cmp -s function other || complain "$plan: another function: $(diff function other)"
done
for change in n_head=4 causal=false act=2; do
  table function -D $change | cmp -s - function && complain "$change: the same function"
done
# A change is told of the parts that it is in.
sed 's/  x = ln_f/  x = x * 2;\n  x = ln_f/' net.pdm >twice.pdm && cp net.pdm first.pdm && cp twice.pdm net.pdm
[ "$(table function | tr , '\n' | grep -c .)" = "$(tr , '\n' <function | grep -c .)" ] || complain "other parts"
table function | cmp -s - function && complain "an operation more: the same function"
cp first.pdm net.pdm
[ "$(table settings -D p=0.3)" != "$(table settings)" ] || complain "settings say nothing of dropout"

tokens() { LC_ALL=C awk -v eighth="$1" 'BEGIN { srand(1); for (i = 1; i <= 4000; i++) printf "%c", i == 8 ? eighth + 0 : 1 + int(rand() * 63) }'; }
tokens 5 >text.txt
tokens 6 >other.txt
build base --stages 1 net.pdm && build heads --stages 1 -D n_head=4 net.pdm &&
  build set --stages 1 -D clip_norm=0.5 -D "optimizer=adamw(lr=2e-3)" -D p=0.2 net.pdm || exit 1
go() { launch 1 "$1" --data "${2:-text.txt}" --steps "${3:-4}" --checkpoint kept --resume ${4:-}; }
launch 1 base --data text.txt --steps 2 --checkpoint state || complain "a run with a checkpoint"
cp -r state kept
go heads >out 2>err && complain "resumed as another function"
grep -q "of step 2 in 'kept' is of a different computation, in 2 parts: 'h.0'; 'h.1'. help: continue all the same with --resume-anyway" err ||
  complain "other heads: $(cat err)"
go heads text.txt 4 --resume-anyway 2>err || complain "--resume-anyway: $(cat err)"
grep -q "warning: --resume-anyway: .* in 2 parts: 'h.0'; 'h.1'$" err || complain "--resume-anyway: $(cat err)"
launch() { # notes are wanted
  ranks=$1 program=$2/train
  shift 2
  $mpirun -n "$ranks" "$program" --peak 1e9 "$@" >out
}
rm -r kept && cp -r state kept
go set 2>err || complain "other settings: $(cat err)"
grep -q "note: this training differs from the checkpoint's: lr 0.002, not 0.001; clip_norm 0.5, not 1; dropout .*0.2, not .*0.1$" err ||
  complain "other settings: $(cat err)"
rm -r kept && cp -r state kept
go base other.txt 2>err || complain "other data: $(cat err)"
grep -q "note: this training differs from the checkpoint's: --data 'other.txt' of [0-9]* bytes differs from 'text.txt' of [0-9]*$" err ||
  complain "other data: $(cat err)"
rm -r kept && cp -r state kept
go base text.txt 4 "--documents 5 --order file" 2>err || complain "other documents: $(cat err)"
grep -q "note: this training differs from the checkpoint's: --documents 5, .*; --order file, " err || complain "other documents: $(cat err)"
launch 1 base --data a=3:text.txt b=1:other.txt --steps 2 --checkpoint shares 2>err || complain "shares: $(cat err)"
launch 1 base --data a=1:text.txt c=1:other.txt --steps 4 --checkpoint shares --resume 2>err || complain "other shares: $(cat err)"
grep -q "note: this training differs from the checkpoint's: source 1 a=0.5000, not a=0.7500; source 2 c=0.5000, not b=0.2500$" err ||
  complain "other shares: $(cat err)"
rm -r kept && cp -r state kept
of_c=bf16 && build rounded --stages 1 net.pdm && of_c= || exit 1
go rounded 2>err || complain "another precision: $(cat err)"
grep -q "note: this training differs from the checkpoint's: precision bf16, not f32$" err || complain "another precision: $(cat err)"
cat >version.c <<'C'
#include <oneapi/dnnl/dnnl.h>
const dnnl_version_t *dnnl_version(void) {
  static const dnnl_version_t other = {.major = 9, .minor = 8, .patch = 7};
  return &other;
}
C
clang -shared -fPIC version.c -o version.so || exit 1
rm -r kept && cp -r state kept
$mpirun -n 1 env LD_PRELOAD="$work/version.so" base/train --peak 1e9 --data text.txt --steps 4 --checkpoint kept --resume 2>err >out ||
  complain "another oneDNN: $(cat err)"
grep -q "note: this training differs from the checkpoint's: library oneDNN 9.8.7, not oneDNN [0-9.]*$" err ||
  complain "another oneDNN: $(cat err)"
rm -r kept && cp -r state kept
go base 2>err || complain "the same training: $(cat err)"
[ -s err ] && complain "the same training: $(cat err)"

# Cuts decide the delays of pipedream's stages, and of no other schedule's: they are among the settings that are compared.
"$pdc" -S --quiet -o late --stages 3 --schedule pipedream -D vertical_sync=true net.pdm || complain "pipedream is refused"
grep -q '"delays of gradients", "[^"]* 2, [^"]* 2, [^"]* 2"' late/stage0.c || complain "pipedream's delays are not recorded"
"$pdc" -S --quiet -o once --stages 3 --schedule 2bw net.pdm || complain "2bw is refused"
grep -q "delays of gradients" once/stage0.c && complain "2bw's delays are recorded, which no cut changes"
exit $failed
