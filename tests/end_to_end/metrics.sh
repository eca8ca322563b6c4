# Logs of `metric`, which changes no other result:  metrics.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Wall,-Wextra,-Werror

# ---- values known by hand ------------------------------------------------------------------------------
# The model expects every byte to be followed by itself: the logit of that is w, of all others 0. So it is right
# where a letter is doubled: 7 of the 16 targets to train with, 5 of the 12 held out. Of equal logits lower classes come
# first: two targets more, b and c, are among the first 100, and where all are equal five are, the a, b and c.
cat >echo.pdm <<'P'
use nn;
model echo(n_ctx = 4) {
  input  tokens[n_ctx] : token(128);
  target next[n_ctx]   : token(128);
  param w[1] = ones;
  logits  = one_hot(unsqueeze(tokens), 128) * w;
  entropy = cross_entropy(logits, next);
  picked  = sum(select(one_hot(unsqueeze(next), 128), 2 * logits, 0));
  metric accuracy   = accuracy(logits, next);
  metric tied       = accuracy(logits, next, k = 100);
  metric even       = accuracy(0 * logits, next, k = 100);
  metric top128     = accuracy(logits, next, k = 128);
  loss entropy;
  metric perplexity = entropy, of_mean = exp;
  metric rms        = picked * picked, of_mean = sqrt;
  metric infinite   = log(entropy - entropy);
}
train echo { batch = 4; optimizer = sgd(lr = 1e-9); }
P
printf aaabbcddddeffghij >doubles
printf aabbccddeefgh >held_out

# logged KEY: its value in log.jsonl.
logged() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" log.jsonl; }
# near KEY WANT
near() { awk -v x="$(logged "$1")" -v y="$2" 'BEGIN { d = x - y; exit !(d < 1e-6 && d > -1e-6) }' || complain "$1 is no $2"; }

build echo --microbatch 2 echo.pdm &&
  launch 1 echo --data doubles --validation held_out --steps 1 --log log.jsonl || complain "echo does not train"
near accuracy 0.4375
near tied 0.5625
near even 0.3125
near top128 1
near loss 4.42786503
near perplexity 83.7524169
near rms 1.32287566
near validation_accuracy 0.41666667
near validation_rms 1.29099445
[ "$(logged infinite)" = null ] || complain "what is not finite is logged as $(logged infinite)"
grep -q '"step":1,"loss":[^,]*,"accuracy":0.4375,"tied":' log.jsonl || complain "the log's order"
mpirun -n 1 --oversubscribe --bind-to none echo/train --data doubles --validation held_out --steps 1 >shown
grep -q '^step 1/1  loss [0-9.]*  accuracy 0.4375  lr' shown || complain "the first metric is not shown"
grep -q '^step 1/1  validation loss [0-9.]*  accuracy 0.4167 over 3 samples' shown || complain "nor after a validation"

# ---- no influence --------------------------------------------------------------------------------------
# The same losses, norms and weights without metrics; with them, wherever they are computed, the same figures.
sed '/^ *metric /d' "$top/models/gpt2.pdm" >plain.pdm
{
  sed '/^}/,$d; s/^ *x = ln_f/  metric size = x * x, of_mean = sqrt;\n&/' plain.pdm
  echo '  metric accuracy = accuracy(logits, next);'
  echo '  metric perplexity = entropy, of_mean = exp;'
  echo '  metric top5 = accuracy(logits, next, k = 5);'
  sed -n '/^}/,$p' plain.pdm
} >metered.pdm

# metered NAME RANKS OPTIONS...: compiles the model of $gpt and trains it.
metered() {
  name=$1 ranks=$2
  shift 2
  tiny_gpt "$name" -n "$ranks" --microbatch 1 "$@" && train_tiny "$ranks" "$name"
}

for schedule in flush 2bw; do
  gpt=plain.pdm
  metered plain 1 --schedule $schedule
  gpt=metered.pdm
  metered whole 1 --schedule $schedule
  sed 's/,"[a-z_]*\(size\|accuracy\|perplexity\|top5\)":[^,}]*//g' whole.figures | cmp - plain.figures ||
    complain "$schedule: metrics change losses"
  cmp whole.safetensors plain.safetensors || complain "$schedule: metrics change weights"
  grep -q '"size":[0-9.]*,"accuracy":0[0-9.]*,"perplexity":[0-9.]*,"top5":[01]' whole.figures || complain "no metrics"
  for stages in 2 4; do
    taken || continue
    metered "s$stages" $stages --stages $stages --schedule $schedule --recompute on && same whole "s$stages"
  done
  # The last stage holds the metrics alone: nothing comes back from it.
  taken && metered alone 2 --stages 2 --split accuracy --schedule $schedule && same whole alone
done
gpt=metered.pdm
metered flush 1 --schedule flush
for schedule in gpipe zb_h1; do
  taken && metered $schedule 3 --stages 3 --schedule $schedule && same flush $schedule
done
metered interleaved 2 --stages 2 --schedule interleaved -D chunks=2 && same flush interleaved
# Of replicas each adds up its own microbatches: sums of shares with a finite binary fraction are exact.
metered replicas 3 --stages 2 --replicas 1,2 --schedule flush
grep -o '"accuracy":[^,]*\|"top5":[^,]*\|"validation_accuracy":[^,]*' flush.figures >one
grep -o '"accuracy":[^,]*\|"top5":[^,]*\|"validation_accuracy":[^,]*' replicas.figures | cmp - one ||
  complain "replicas: other metrics"

# ---- statistics of a microbatch ----------------------------------------------------------------------------
# Samples that fill up the last microbatch would count in them: such data is refused. The counted samples of batch
# norm's running averages are those of training alone, so that it takes any.
cat >centred.pdm <<'P'
use nn;
layer centre(x) { return x - sum_to(x, [1, 128]) / (4 * microbatch()); }
model centred(n_ctx = 4) {
  input  tokens[n_ctx] : token(128);
  target next[n_ctx]   : token(128);
  param w[1] = ones;
  x = bn: batch_norm(one_hot(unsqueeze(tokens), 128) * w);
  loss cross_entropy(middle: centre(x), next);
}
train centred { batch = 4; optimizer = sgd(lr = 1e-9); }
P
sed 's/middle: centre(x)/x/' centred.pdm >normed.pdm
# refused DIR PROGRAM OPTIONS...: with three samples in microbatches of two, not with four.
refused() {
  dir=$1
  shift
  $mpirun -n 1 "$dir/$@" held_out >refused.log 2>&1 && complain "$dir takes samples that do not fill its microbatches"
  grep -q "has 3 samples, which is not a multiple of the microbatch of 2, but layer middle takes statistics over whole microbatches .PD0591" refused.log ||
    complain "$dir: $(head -n 3 refused.log)"
  $mpirun -n 1 "$dir/$@" doubles >refused.log 2>&1 || complain "$dir: $(head -n 3 refused.log)"
}
build centred --stages 1 --microbatch 2 centred.pdm &&
  refused centred train --data doubles --steps 1 --save centred.weights --validation
build infers --stages 1 --microbatch 2 --infer centred.pdm && refused infers infer --init centred.weights --data
"$pdc" --stages 2 --microbatch 2 --emit source normed.pdm | grep -q '[.]statistics' && complain "running averages take any samples"
exit $failed
