#!/bin/sh
# usage: cases.sh CASE PDC SOURCE_DIR CC BUILD_DIR
# One case of the command line's and the emitted files' tests, in a directory of its own.
. "${0%/*}/common.sh"

check_source() {
  "$cc" -std=gnu11 -fsyntax-only -fopenmp -Wall -Wextra -Wpedantic -Werror -I"$source/runtime" "$1" ||
    fail "$1 does not compile cleanly"
}

gpt_small="-D n_layer=3 -D n_embd=32 -D n_head=2 -D n_ctx=20 -D vocab_size=256"
llama_small="-D n_layer=3 -D n_embd=32 -D n_head=4 -D n_ctx=20"

sources_are_clean() {
  for model in mlp gpt_mini llama_mini gpt2 bert; do
    for how in "--stages 1" "--stages 2" "--stages 2 --recompute on --schedule flush" "--stages 1 --schedule sequential"; do
      expect 0 "$pdc" -S $how -o "$model.build" "$source/models/$model.pdm"
      for file in "$model.build"/stage*.c; do
        check_source "$file"
      done
    done
  done
  expect 0 "$pdc" -S --stages 3 $gpt_small -D p_drop=0.1 -D "optimizer=sgd(lr=0.1)" -D clip_norm=0 -o drop.build \
    "$source/models/gpt_mini.pdm"
  expect 0 "$pdc" -S -n 1 -o again.build "$source/tests/unit/models/again.pdm"
  for file in drop.build/stage*.c again.build/stage*.c; do
    check_source "$file"
  done
}

# The number of lines of a loop over time does not depend on the number of steps.
loops_are_not_unrolled() {
  for length in 3 1024; do
    expect 0 "$pdc" -S --stages 1 -D n_layer=1 -D width=256 -D length=$length -o "of_$length" "$source/tests/bench/gru.pdm"
    check_source "of_$length/stage0.c"
    wc -l <"of_$length/stage0.c" >"lines_$length"
  done
  lines=$(cat lines_1024)
  [ "$lines" -lt 480 ] || fail "a GRU of 1024 steps has $lines lines"
  [ "$lines" -le $(($(cat lines_3) + 20)) ] || fail "a GRU of 1024 steps has $lines lines, and one of 3 $(cat lines_3)"
  for model in mamba_mini rwkv_mini; do
    expect 0 "$pdc" -S -n 2 --stages 2 -o "$model.build" "$source/models/$model.pdm"
    for file in "$model.build"/stage*.c; do
      check_source "$file"
    done
  done
}

sources_are_the_same_twice() {
  for stages in 1 3; do
    expect 0 "$pdc" -S --stages $stages -o a "$source/models/gpt_mini.pdm"
    expect 0 "$pdc" -S --stages $stages -o b "$source/models/gpt_mini.pdm"
    for file in plan.json stage0.c; do
      cmp "a/$file" "b/$file" || fail "$file differs between two runs"
    done
  done
  expect 0 "$pdc" --stages 3 --emit source "$source/models/gpt_mini.pdm"
  cat a/stage0.c a/stage1.c a/stage2.c | cmp - out || fail "--emit source prints something else than -S writes"
}

hostile_names_are_harmless() {
  cat >'while.pdm' <<'END'
model int_(width = 8) {
  input x[width];
  target y[width];
  param main[width, width] = normal(0.1);
  param arena[width] = ones;
  param VERSIONS[width] = ones;
  scratch = x @ main.T;
  memset = tanh(scratch) * arena;
  pd_fail = exp(memset * VERSIONS);
  loss square(pd_fail - y);
}
train int_ { batch = 4; optimizer = sgd(lr = 0.1); }
END
  expect 0 "$pdc" -S -o 'a $(touch injected) "b' while.pdm
  check_source 'a $(touch injected) "b/stage0.c'
  expect 0 "$pdc" -v -o 'a $(touch injected) "b' while.pdm
  [ -x 'a $(touch injected) "b/stage0' ] || fail "no program"
  [ ! -e injected ] || fail "a directory's name was run"
}

a_person_can_read_gpt_mini() {
  expect 0 "$pdc" -S -n 2 --split 'h[2]' --microbatch 4 -o g "$source/models/gpt_mini.pdm"
  lines=$(wc -l <g/stage0.c)
  [ "$lines" -lt 925 ] || fail "stage0.c has $lines lines"
  long=$(awk 'length > 110' g/stage0.c g/stage1.c | wc -l)
  [ "$long" = 0 ] || fail "$long lines are longer than 110 columns"
  contains g/stage0.c 'struct h_weights h\[2\]; /\* h.0 .. h.1 \*/'
  contains g/stage0.c 'h_forward(&w->h\[1\]'
  contains g/stage0.c 'return batch > DELAY ? batch - DELAY : 0;'
  contains g/stage0.c 'arena->weights\[version(k) % VERSIONS\]'
  contains g/stage0.c 'Warm-up: fill the pipeline'
  contains g/stage0.c '  {.name = "h.0.attn.c_attn.weight", .order = 4, .dim = {768, 256}, .rank = 2,$'
  contains g/stage0.c '   .init = PD_NORMAL, .init_value = 0.02, .decays = true, USED_ONCE(h\[0\].attn_c_attn_weight)},$'
  contains g/stage0.c '     {.stage = 1, .offset = offsetof(struct arena, exchanged\[0\].wte_weight_use_2)})},$'
  contains g/stage0.c '  {.name = "h.1.mlp.gelu.h", SAVED(h\[1\].mlp_gelu_h)},$'
  contains g/stage0.c '    {.values = sent_values, .n_values = 1, .slots = SENT_SLOTS, .stride = sizeof(struct sent)},$'
  contains g/stage0.c '  .q = {.batch = 98304, .head = 64, .row = 768}, '
  lacks g/stage0.c '^ *{[^.]'
}

# readable DIR LINES: every stage of it compiles cleanly, is no longer than that and no wider than 110 columns.
readable() {
  for file in "$1"/stage*.c; do
    check_source "$file"
    lines=$(wc -l <"$file")
    [ "$lines" -lt "$2" ] || fail "$file has $lines lines"
    long=$(awk 'length > 110' "$file" | wc -l)
    [ "$long" = 0 ] || fail "$file: $long lines are longer than 110 columns"
  done
}

gpipe_reads_well() {
  expect 0 "$pdc" -S -n 2 --split 'h[2]' --microbatch 2 --schedule gpipe -o g "$source/models/gpt_mini.pdm"
  readable g 1065
  contains g/stage1.c 'IN_FLIGHT = 4, '
  contains g/stage1.c 'return batch;'
  [ "$(grep -c 'update(u++, b - 1)' g/stage0.c)" = 1 ] || fail "updates elsewhere than in the drain"
}

pipedream_reads_well() {
  expect 0 "$pdc" -S --stages 3 --microbatch 4 --schedule pipedream -D batch=4 -o p "$source/models/mlp.pdm"
  readable p 420
  contains p/stage0.c 'runs forward and backward with the same version'
  contains p/stage0.c 'microbatch k with W(max(k - 3, 0))'
  contains p/stage0.c 'VERSIONS = 3, '
  contains p/stage1.c 'VERSIONS = 2, '
  contains p/stage2.c 'VERSIONS = 1, '
}

interleaved_reads_well() {
  expect 0 "$pdc" -S -n 2 --split 'h[1],h[2],h[3]' --microbatch 2 --schedule interleaved -D chunks=2 -o i "$source/models/gpt_mini.pdm"
  readable i 1190
  contains i/stage0.c 'Stage 0 .*; '
  contains i/stage0.c 'struct saved_1 saved_1\[SAVED_SLOTS_1\]'
  contains i/stage0.c 'switch (chunk(turn))'
  contains i/stage0.c 'switch (CHUNKS - 1 - chunk(turn))'
  contains i/stage0.c 'case 1: backward_1(k); break;'
  awk '/\.activations_in = {/ { getline first; getline second; print first; print second }' i/stage0.c >in
  contains in '^    {.n_values = 0},$'
  contains in '^    {.values = received_1_values, .n_values = 1, .slots = RECEIVED_SLOTS,'
  contains i/stage0.c '{.name = "h.2.ln_1", SAVED_1('
  lacks i/stage0.c '^ *{[^.]'
}

# What one part hands to the next is one struct, and what all have as many slots of has one constant.
spilled_reads_well() {
  expect 0 "$pdc" -S --schedule spilled --memory 20MiB --spill . --split 'h[0],h[1],h[2],h[3]' --microbatch 1 -o s \
    "$source/models/gpt_mini.pdm"
  readable s 1500
  contains s/stage0.c '^  RECEIVED_SLOTS = 8,$'
  contains s/stage0.c '^struct received_2 { /\* activations of the part before \*/$'
  contains s/stage0.c 'forward_pass_1(.*, struct received_2 \*sent)\|struct received_2 \*sent) {'
  lacks s/stage0.c '^struct sent_\|^struct gradients_sent_'
  lacks s/stage0.c 'SLOTS_[0-9]'
}

zb_h1_reads_well() {
  expect 0 "$pdc" -S -n 2 --split 'h[2]' --microbatch 2 --schedule zb_h1 -o z "$source/models/gpt_mini.pdm"
  readable z 1125
  contains z/stage0.c 'static void weights(int64_t k)'
  contains z/stage0.c 'PD_WEIGHTS, k'
  contains z/stage0.c 'if (b - w > WEIGHTS_LAG)'
  contains z/stage1.c 'while (w <= last)'
  grep -q 'pd_matmul(mlp_c_fc_weight_gradient' z/stage0.c || fail "no gradient of a weight"
  awk '/^static void .*weight(s|_gradients)\(/ { weights = 1 } /^}/ { weights = 0 }
       /pd_matmul\(.*weight_gradient/ && !weights { print; bad = 1 } END { exit bad }' z/stage0.c ||
    fail "a weight's gradient is made in the backward pass"
}

replicas_read_well() {
  expect 0 "$pdc" -S -n 3 --split 'h[2]' --replicas 2,1 --microbatch 1 -o r "$source/models/gpt_mini.pdm"
  readable r 1065
  contains r/stage0.c 'Stage 0 .*, 2 ranks (this program)'
  contains r/stage0.c "dealt in turn to this stage's 2 ranks"
  contains r/stage0.c 'MICROBATCHES = 4, .* on this rank'
  contains r/stage1.c 'MICROBATCHES = 8, '
  contains r/stage0.c 'replicas\[\] = {2, 1}'
  contains r/stage0.c '\.reduced = offsetof(struct arena, exchanged\[0\]\.reduced)'
  [ "$(cat r/app)" = "-n 2 -x PD_PLAN=r/plan.json r/stage0
-n 1 -x PD_PLAN=r/plan.json r/stage1" ] || fail "another app file than two ranks of the first stage, one of the second"
  for stage in 0 1; do
    printf '#!/bin/sh\necho "stage %s: $* by $PD_PLAN"\n' $stage >r/stage$stage
    chmod +x r/stage$stage
  done
  for rank in 0 1 2; do
    expect 0 env "OMPI_COMM_WORLD_RANK=$rank" OMPI_COMM_WORLD_SIZE=3 r/train --steps 1
    contains out "stage $((rank / 2)): --steps 1 by r/plan.json"
  done
  expect 1 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 r/train
  contains err 'has 2 stage(s) on 3 rank(s), but the launch has 2 rank(s)'
}

# A stage holds h.0 whole and of h.1 a part: their first kernels are alike, their weights are not.
parts_of_blocks_are_not_blocks() {
  cat >parts.pdm <<'END'
use nn;
model parts(width = 8) {
  input x[width];
  target y[width];
  x = e: linear(x, width);
  for i in 0..4 {
    x = x + h[i].a: linear(x, width);
    x = x + h[i].m: linear(x, width);
  }
  loss mse_loss(x, y);
}
train parts { batch = 4; optimizer = sgd(lr = 0.1); }
END
  for split in 'h[1].m' 'h[2].m' 'h[1].m,h[3].m' 'h[2].a,h[2].m'; do
    for how in "" "--recompute on --schedule flush" "--schedule zb_h1"; do
      expect 0 "$pdc" -S --split "$split" $how -o parts.build parts.pdm
      for file in parts.build/stage*.c; do
        check_source "$file"
      done
      rm -r parts.build
    done
  done
  expect 0 "$pdc" -S --split 'h[2].m' -o parts.build parts.pdm
  contains parts.build/stage0.c 'struct h_weights h\[2\]; /\* h.0 .. h.1 \*/'
  contains parts.build/stage0.c 'struct h_2_weights h_2; /\* h.2 \*/'
}

launcher_counts_ranks() {
  expect 0 "$pdc" -S --stages 2 $gpt_small -o g "$source/models/gpt_mini.pdm"
  for stage in 0 1; do
    printf '#!/bin/sh\necho "stage %s: $*"\n' $stage >g/stage$stage
    chmod +x g/stage$stage
  done
  for names in "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE" "PMI_RANK PMI_SIZE" "SLURM_PROCID SLURM_NTASKS"; do
    set -- $names
    expect 0 env "$1=1" "$2=2" g/train --data 'a b'
    contains out 'stage 1: --data a b'
    expect 1 env "$1=0" "$2=3" g/train
    contains err 'has 2 stage(s).*has 3 rank(s)'
  done
  for garbage in x '' '0 1' 'a[$(touch injected)]' 1,2 -1; do
    expect 1 env OMPI_COMM_WORLD_RANK=0 "OMPI_COMM_WORLD_SIZE=$garbage" g/train
    contains err 'are not numbers'
    [ -z "$garbage" ] && continue
    expect 1 env "OMPI_COMM_WORLD_RANK=$garbage" OMPI_COMM_WORLD_SIZE=2 g/train
    contains err 'are not numbers'
  done
  expect 1 env -u OMPI_COMM_WORLD_RANK -u PMI_RANK -u PMIX_RANK -u SLURM_PROCID g/train
  contains err 'mpirun -n 2'
  for help in --help -h; do
    expect 0 env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 g/train --steps 3 $help
    contains out 'stage 0: --help'
  done
}

# Where a layer takes statistics over a microbatch, the planner says that it chose how large it is.
chosen_microbatches_are_told() {
  cat >normed.pdm <<'END'
use nn;
model normed(width = 8) {
  input x[width];
  target y[width];
  for i in 0..4 {
    x = relu(h[i].bn: batch_norm(h[i].fc: linear(x, width)));
  }
  loss mse_loss(x, y);
}
train normed { batch = 16; optimizer = sgd(lr = 0.1); }
END
  expect 0 "$pdc" plan --stages 2 normed.pdm
  contains err "warning: the planner chose microbatches of [0-9]* samples, and 'h.0.bn' computes statistics.*PD0509"
  for microbatch in 4 16; do
    expect 0 "$pdc" -S --stages 2 --microbatch $microbatch -o pinned normed.pdm
    lacks err PD0509
  done
  expect 0 "$pdc" -S --plan pinned/plan.json -o again normed.pdm
  lacks err PD0509
  expect 0 "$pdc" plan --stages 2 $gpt_small "$source/models/gpt_mini.pdm"
  lacks err PD0509
  expect 0 "$pdc" explain PD0509
}

statistics_of_one_value_are_refused() {
  one=$source/tests/emit/batch_norm_one.pdm
  expect 1 "$pdc" plan --microbatch 1 "$one"
  contains err "--microbatch: microbatches of 1 sample have statistics over 1 value .PD0590"
  contains err "note: 'bn' computes statistics over the values of a microbatch, 1 per sample"
  contains err "help: use '--microbatch 2'"
  expect 1 "$pdc" plan -D batch=1 "$one"
  contains err "'flush' with 1 stage cannot split a batch of 1 into microbatches of 2 samples or more .PD0590"
  contains err "help: use '-D batch=2'"
  expect 1 "$pdc" plan --schedule 2bw --stages 4 "$one"
  contains err "'2bw' with 4 stages cannot split a batch of 4 into microbatches of 2 samples or more .PD0590"
  contains err "help: use '-D batch=6'"
  for form in "--stages 4 -D batch=6" "--replicas 2,1" "--replicas 3,2 -D batch=12" "--schedule flush -n 5"; do
    expect 0 "$pdc" plan --schedule 2bw $form "$one"
    contains out "microbatch[es]* of [2-9]"
    lacks out "microbatch 1 "
  done
  expect 1 "$pdc" plan --schedule 2bw --replicas 3,2 -D batch=6 "$one"
  contains err "help: use '-D batch=12'"
  expect 0 "$pdc" -S --microbatch 2 -o plan "$one"
  sed 's/"microbatch": 2,/"microbatch": 1,/; s/"microbatches": 2/"microbatches": 4/' plan/plan.json >one.json
  expect 1 "$pdc" plan --plan one.json "$one"
  contains err "one.json: error: 'microbatch': microbatches of 1 sample have statistics over 1 value .PD0590"
  expect 0 "$pdc" plan --infer --microbatch 1 "$one"
  resnet="$source/models/resnet50.pdm"
  expect 1 "$pdc" plan --microbatch 1 -D size=32 "$resnet"
  contains err "'layer4.0.bn2' computes statistics over the values of a microbatch, 1 per sample"
  expect 0 "$pdc" plan --microbatch 1 -D size=64 "$resnet"
}

shared_masks_are_not_kept() {
  for target in c cuda; do
    expect 0 "$pdc" --emit kernels --target $target --microbatch 4 -D layers=3 "$source/tests/emit/shared_mask.pdm"
    contains out '^buffer [0-9]* temporary h*_*attn_mask '
    lacks out '^buffer [0-9]* saved .*mask'
  done
}

ranks_of_no_use_are_told() {
  expect 0 "$pdc" -S -n 11 --memory 1GiB -o eleven "$source/models/gpt_mini.pdm"
  contains err 'warning: of 11 ranks, the plan uses only [0-9]* .PD0510'
  used=$(sed -n 's/.*of 11 ranks, the plan uses only \([0-9]*\).*/\1/p' err)
  contains err "launch the programs with 'mpirun -n $used'"
  expect 0 "$pdc" -S -n 4 --memory 1GiB -o four "$source/models/gpt_mini.pdm"
  lacks err PD0510
  expect 0 "$pdc" plan -n 16 --schedule sequential "$source/models/mlp.pdm"
  contains err 'warning: of 16 ranks, the plan uses only [0-9]* .PD0510'
  contains err 'the model can be cut at only [0-9]* places'
  expect 1 "$pdc" plan --stages 16 --schedule sequential "$source/models/mlp.pdm"
  contains err 'PD0505'
}

# traits OPTIONS... MODEL: names and values of the source's table, in one line.
traits() {
  expect 0 "$pdc" --stages 1 --emit source "$@"
  sed -n '/char \*const traits\[\] = {/,/}/p' out | tr -d '\n' | sed 's/.*= {//; s/}.*//; s/[",]//g; s/  */ /g'
}
has_traits() { # WANTED OPTIONS... MODEL
  wanted=$1
  shift
  found=$(traits "$@")
  [ "$found" = "$wanted" ] || fail "traits of $*: $found"
}

traits_are_the_graphs() {
  llama="num_attention_heads 8 num_key_value_heads 2 head_dim 32 rms_norm_eps 1e-05 rotary_dim 32 rope_theta 10000 hidden_act silu"
  window="sliding_window 128 attention_length 128"
  has_traits "$llama tie_word_embeddings false $window" "$source/models/llama_mini.pdm"
  has_traits "$llama tie_word_embeddings true $window" --infer -D tied=true "$source/models/llama_mini.pdm"
  has_traits "$llama tie_word_embeddings true $window" --generate -D tied=true "$source/models/llama_mini.pdm"
  has_traits "$llama tie_word_embeddings false $window" --tensor 2 "$source/models/llama_mini.pdm"
  has_traits "num_attention_heads 4 num_key_value_heads 4 head_dim 64 layer_norm_eps 1e-05 hidden_act gelu_pytorch_tanh tie_word_embeddings true $window" \
    "$source/models/gpt_mini.pdm"
  has_traits "layer_norm_eps 1e-12 hidden_act gelu tie_word_embeddings true" "$source/models/bert.pdm"
  has_traits "$llama tie_word_embeddings false $window num_experts_per_tok 2 norm_topk_prob true" "$source/models/mixtral_mini.pdm"
  has_traits "$llama tie_word_embeddings false $window num_experts_per_tok 3 norm_topk_prob true" --generate -D top_k=3 \
    "$source/models/mixtral_mini.pdm"
  cat >moe.pdm <<'P'
use experts;
model moe() {
  input  x[4, 6];
  target y[4, 6];
  out, logits, chosen = moe: mixture_of_experts(x, 8, 3, 2, normalize = false);
  loss mse_loss(out, y);
}
train moe { batch = 2; }
P
  has_traits "hidden_act silu num_experts_per_tok 2 norm_topk_prob false" moe.pdm
  for model in lenet resnet50 mlp gnmt8; do
    has_traits "" "$source/models/$model.pdm"
  done
  # Written out: a norm by a root and a square, a rotation whose slow half is scaled, GPT-2's formula with tanh, no head.
  cat >own.pdm <<'P'
use llama;
layer root_norm(x[.., width], eps = 1e-5) {
  param weight[width] = ones;
  c = x - mean(x);
  return c / sqrt(eps + mean(square(c))) * weight;
}
layer rotated(x[heads, length, size]) {
  half = size / 2;
  f = exp(iota(half) * (-2 * log(500000) / size));
  f = select(greater(iota(half), half / 2), f / 8, f);
  angle = unsqueeze(iota(length)) * f;
  a, b = split(x, 2);
  return concat(a * cos(angle) - b * sin(angle), b * cos(angle) + a * sin(angle));
}
model own(n = 16, classes = 10) {
  input x[6, n] : f32;
  target y[6] : token(classes);
  h = a: root_norm(x);
  q = rotated(reshape(h, [1, 6, n]));
  h = reshape(scaled_dot_product_attention(q, q, q, causal = true), [6, n]);
  u = up: linear(h, 2 * n);
  u = 0.5 * u * (1 + tanh(sqrt(2 / pi) * (u + 0.044715 * u * u * u)));
  loss cross_entropy(out: linear(b: root_norm(u, eps = EPS), classes), y);
}
train own { batch = 4; optimizer = sgd(lr = 0.1); pipeline = flush; }
P
  sed 's/EPS/1e-5/' own.pdm >same.pdm
  sed 's/EPS/1e-6/' own.pdm >differs.pdm
  heads="num_attention_heads 1 num_key_value_heads 1 head_dim 16"
  f="1 0.1939227 0.03760603 0.007292665 0.001414214 3.428102e-05 6.64787e-06 1.289173e-06"
  has_traits "$heads layer_norm_eps 1e-05 rotary_dim 16 rope_frequencies $f hidden_act gelu_pytorch_tanh sliding_window 6 attention_length 6" same.pdm
  has_traits "$heads rotary_dim 16 rope_frequencies $f hidden_act gelu_pytorch_tanh sliding_window 6 attention_length 6" differs.pdm
}

schedules_are_compared() {
  expect 0 "$pdc" plan --compare -n 4 $gpt_small "$source/models/gpt_mini.pdm"
  for row in 'sequential (naive)' 'data parallel' gpipe flush interleaved zb_h1 pipedream 2bw; do
    contains out "^$row.* stage [0-3], [0-9]* %  *[0-9,]*$"
  done
  expect 0 "$pdc" plan --schedule auto -n 4 $gpt_small "$source/models/gpt_mini.pdm"
  contains out '^why: Schedule [a-z0-9_]*: the fastest plan found among the schedules sequential, gpipe, flush, 2bw, interleaved, zb_h1.'
  expect 0 "$pdc" plan --schedule auto --delay 0 -n 4 $gpt_small "$source/models/gpt_mini.pdm"
  lacks out 2bw
  sed 's/pipeline *= 2bw;/pipeline = auto;/' "$source/models/lenet.pdm" >open.pdm
  expect 0 "$pdc" -S -n 2 -o open open.pdm
  expect 0 "$pdc" -S --plan open/plan.json -o again open.pdm
  expect 0 "$pdc" plan --schedule gpipe -n 4 "$source/models/gpt_mini.pdm"
  contains out "^hint: '--schedule 2bw' takes .* less, with weights one update old"
  expect 0 "$pdc" plan --schedule 2bw -n 4 "$source/models/gpt_mini.pdm"
  lacks out '^hint:'
  expect 1 "$pdc" plan --compare --schedule 2bw "$source/models/gpt_mini.pdm"
  contains err PD0511
  expect 1 "$pdc" plan --delay 0 "$source/models/gpt_mini.pdm"
  contains err PD0511
}

failures_leave_the_directory_alone() {
  : >file
  expect 1 "$pdc" -S -o file/inside $gpt_small "$source/models/gpt_mini.pdm"
  contains err 'PD0605'
  [ "$(grep -c error err)" = 1 ] || fail "more than one error"
  expect 0 "$pdc" -S --stages 3 $gpt_small -o g "$source/models/gpt_mini.pdm"
  [ "$(cat out)" = 'g: 3 sources, not compiled' ] || fail "it does not say where the sources are: $(cat out)"
  expect 0 "$pdc" -S --quiet --stages 3 $gpt_small -o g "$source/models/gpt_mini.pdm"
  [ ! -s out ] || fail "--quiet: $(cat out)"
  cp g/stage0.c before
  expect 1 "$pdc" --stages 99 $gpt_small -o g "$source/models/gpt_mini.pdm"
  cmp before g/stage0.c || fail "a refused request changed a file"
  expect 0 "$pdc" -S --stages 1 $gpt_small -o g "$source/models/gpt_mini.pdm"
  [ ! -e g/stage1.c ] || fail "a stage of an earlier build was left"
  expect 1 "$pdc" --cc /nowhere/cc $gpt_small -o g "$source/models/gpt_mini.pdm"
  contains err "PD0606"
  expect 1 "$pdc" --cc "sh -c false" $gpt_small -o g "$source/models/gpt_mini.pdm"
  contains err "PD0606"
  [ ! -e g/.pdc-new ] || fail "a build that failed was left"
  if [ -w /dev/full ]; then
    "$pdc" --emit plan $gpt_small "$source/models/gpt_mini.pdm" >/dev/full 2>err && fail "a full disk went unnoticed"
    contains err 'standard output'
    for words in --help --version 'explain linear' 'completion bash' doctor; do
      "$pdc" $words >/dev/full 2>err && fail "$words: a full disk went unnoticed"
      contains err "cannot write to standard output"
    done
  fi
}

options_are_checked() {
  expect 0 "$pdc" --help
  contains out '--tensor N|auto'
  expect 2 "$pdc" show --quiet x.pdm
  contains err "--quiet is for 'pdc build', .*, not for 'pdc show'"
  contains err "help: 'pdc show --help' lists the options of this command"
  expect 2 "$pdc" infer --bucket 1MiB x.pdm
  contains err "--bucket is for 'pdc build', 'pdc plan' and 'pdc show', not for 'pdc infer'"
  expect 2 "$pdc" --infer --bucket 1MiB x.pdm
  contains err "not for 'pdc infer'"
  expect 2 "$pdc" doctor --schedule 2bw
  contains err "not for 'pdc doctor'"
  for words in build infer 'plan --infer'; do
    expect 0 "$pdc" $words --emit graph "$source/models/mlp.pdm"
  done
  expect 0 "$pdc" generate --emit graph "$source/models/gpt_mini.pdm"
  expect 2 "$pdc" sharp -n 2 --emit graph "$source/models/mlp.pdm" "$source/models/mlp.pdm"
  contains err "--sharp builds all of several models"
  expect 0 "$pdc" --version
  expect 2 "$pdc"
  expect 2 "$pdc" --stagse 2 x.pdm
  contains err "did you mean '--stages'"
  expect 2 "$pdc" --stages two x.pdm
  expect 2 "$pdc" --memory 16XB x.pdm
  expect 2 "$pdc" --stop-after nothing x.pdm
  expect 2 "$pdc" a.pdm b.pdm
  expect 1 "$pdc" missing.pdm
  expect 1 "$pdc" report x
  contains err PD0611
  expect 0 "$pdc" explain PD0605
  expect 1 "$pdc" explain PD9999
  expect 0 "$pdc" -fsyntax-only "$source/models/gpt2.pdm"
  [ ! -e gpt2.build ] || fail "-fsyntax-only wrote something"
  expect 0 "$pdc" '-###' "$source/models/mlp.pdm"
  contains err 'ffp-contract=off'
  [ ! -e mlp.build ] || fail "-### wrote something"
  expect 0 "$pdc" -S -MD "$source/models/gpt_mini.pdm"
  contains gpt_mini.build/gpt_mini.d 'transformer.pdm'
}

passes_can_be_watched() {
  expect 0 "$pdc" --stop-after simplify -d peascl --time-passes --verify-each "$source/models/gpt_mini.pdm"
  contains err '^simplify .* ms$'
  grep -q '^fuse ' err && fail "a pass ran behind --stop-after"
  expect 0 "$pdc" plan --time-passes --stages 2 $gpt_small "$source/models/gpt_mini.pdm"
  for step in 'sign .* ranks?(, of which [0-9]+ cached)?' 'fuse .* parts?(, of which [0-9]+ cached)?' 'schedule .* plans?' 'simulate .* plans?' 'allocate .* stages?'; do
    grep -qE "^  $step\$" err || fail "--time-passes does not say where the planner's time went: $step"
  done
  grep -q '^fuse ' err && fail "'pdc plan' fuses once more what is not printed"
  expect 0 "$pdc" plan --emit schedule --time-passes --stages 2 $gpt_small "$source/models/gpt_mini.pdm"
  grep -qE '^fuse .* ms  2 parts$' err || fail "--time-passes does not say how many parts were fused"
  for what in ast graph kernels plan schedule source; do
    expect 0 "$pdc" --emit $what $gpt_small "$source/models/gpt_mini.pdm"
    [ -s out ] || fail "--emit $what prints nothing"
  done
  expect 0 "$pdc" -S --verify-each --stages 3 -d flwtmob $gpt_small "$source/models/gpt_mini.pdm"
  expect 0 "$pdc" plan -n 2 "$source/models/gpt_mini.pdm"
  # Some of its running averages serve no output.
  expect 0 "$pdc" plan --verify-each --infer --stages 1 "$source/tests/unit/models/averages.pdm"
}

# What a stage of many blocks takes does not follow from few of them here: it is laid out whole, and planned once more.
wrong_guesses_are_mended() {
  for split in norm_40,norm_40.mean_2 norm_29.mean_2,norm_40; do
    expect 0 timeout 30 "$pdc" -S --schedule 2bw -D batch=4 --microbatch 2 --split $split -o guessed \
      "$source/tests/unit/models/rows.pdm"
  done
}

profiles_are_measured() {
  for how in "--threads 1" "--threads 2"; do
    expect 0 "$pdc" profile -n 2 $how $gpt_small -D p_drop=0.1 "$source/models/gpt_mini.pdm"
    expect 0 "$pdc" plan -n 2 $how $gpt_small -D p_drop=0.1 --profile gpt_mini.profile.json "$source/models/gpt_mini.pdm"
    contains out 'profile gpt_mini.profile.json'
    contains gpt_mini.profile.json '"update": { "element_ns": [0-9]'
  done
  expect 1 "$pdc" plan -n 2 --profile gpt_mini.profile.json "$source/models/gpt_mini.pdm"
  # A shard group's rank: what it sends is counted beside.
  how="--tensor 2 --stages 1 --schedule flush --threads 1 --microbatch 2 $gpt_small -D p_drop=0.1"
  expect 1 "$pdc" plan -n 2 $how --profile gpt_mini.profile.json "$source/models/gpt_mini.pdm"
  expect 0 "$pdc" profile -n 2 $how -o parts.json "$source/models/gpt_mini.pdm"
  sed 's/"\(forward\|backward\|weights\)_ms": [0-9.e+-]*/"\1_ms": 0/g' parts.json >free.json
  for profile in parts free; do
    expect 0 "$pdc" plan -n 2 $how --profile $profile.json --emit plan "$source/models/gpt_mini.pdm"
    sed -n 's/.*"forward_seconds": \([0-9.e+-]*\).*/\1/p' out >$profile.seconds
  done
  awk 'NR == FNR { parts = $1; next } !($1 > 0 && $1 < parts) { exit 1 }' parts.seconds free.seconds ||
    fail "what a group sends is not counted beside what was measured"
  # Where memory is short, activations by positions are looked for, with seconds scaled from those of whole ones.
  how="--tensor 2 --stages 1 --schedule flush --threads 1 --microbatch 2 -D n_layer=2 -D n_head=2 -D n_embd=64 -D n_ctx=128"
  expect 0 "$pdc" profile -n 2 $how -D vocab_size=128 -D batch=8 -o parts.json "$source/models/gpt_mini.pdm"
  how="$how -D vocab_size=128 -D batch=8 --emit plan"
  expect 0 "$pdc" plan -n 2 $how --profile parts.json "$source/models/gpt_mini.pdm"
  peak=$(sed -n 's/.*"peak_bytes": \([0-9]*\),.*/\1/p' out)
  how="$how --memory $((peak + 8 * 1048576 - 4096))"
  expect 0 "$pdc" plan -n 2 $how --profile parts.json "$source/models/gpt_mini.pdm"
  contains out '"activations_by_positions": true'
  contains out '"costs": "profile parts.json of whole activations, scaled"'
  sed 's/"\(forward\|backward\|weights\)_ms": [0-9.e+-]*/"\1_ms": 0/g' parts.json >free.json
  sed -n 's/.*"forward_seconds": \([0-9.e+-]*\).*/\1/p' out >parts.seconds
  expect 0 "$pdc" plan -n 2 $how --profile free.json "$source/models/gpt_mini.pdm"
  sed -n 's/.*"forward_seconds": \([0-9.e+-]*\).*/\1/p' out >free.seconds
  awk 'NR == FNR { parts = $1; next } !($1 > 0 && $1 < parts) { exit 1 }' parts.seconds free.seconds ||
    fail "what was measured of whole activations does not count where they are split"
}

# Builds DIR's stage programs with extra flags and trains a few updates on two ranks.
train_with() {
  dir=$1
  shift
  images=$("$pdc" --version | sed -n 's/^images: JPEG.*/-ljpeg -lpng/p')
  for stage in 0 1; do
    "$cc" -std=gnu11 -O1 -g -march=native -ffp-contract=off -fno-math-errno -fopenmp "$@" -I"$source/runtime" \
      "$dir/stage$stage.c" -o "$dir/stage$stage" "$build/libpd_runtime.a" -lomp -ldnnl -lcjson $images \
      $(mpicc.openmpi --showme:link) -lpthread -lm || fail "cannot build $dir/stage$stage"
  done
  OMP_NUM_THREADS=2 mpirun --allow-run-as-root --oversubscribe -n 2 "$dir/train" --data text --steps 4 --timeout 300 \
    --log log --save weights >out 2>&1 || { cat out >&2; fail "training failed"; }
}

sanitized_training() {
  cat "$source"/compiler/*/*.c >text
  for how in "gpt_mini $gpt_small -D p_drop=0.1" "gpt_mini $gpt_small --recompute on --schedule flush" "llama_mini $llama_small"; do
    set -- $how
    model=$1
    shift
    expect 0 "$pdc" -S --stages 2 --microbatch 1 "$@" -o s "$source/models/$model.pdm"
    UBSAN_OPTIONS=halt_on_error=1 train_with s -fsanitize=undefined -fno-sanitize-recover=all
    UBSAN_OPTIONS=halt_on_error=1 ASAN_OPTIONS=detect_leaks=0 train_with s -fsanitize=address -fno-omit-frame-pointer
  done
}

recomputation_uses_its_own_slot() {
  cat "$source"/compiler/*/*.c >text
  for recompute in off on; do
    expect 0 "$pdc" -S --stages 2 --microbatch 1 --recompute $recompute $gpt_small -D p_drop=0.2 -o r "$source/models/gpt_mini.pdm"
    train_with r
    grep -o '"loss":[^,]*' log >losses.$recompute
    mv weights weights.$recompute
  done
  grep -q 'recompute(b)' r/stage0.c || fail "nothing was recomputed"
  cmp losses.off losses.on && cmp weights.off weights.on || fail "recomputation changed bits"
}

$case
