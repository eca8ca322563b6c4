#!/bin/sh
# usage: cuda.sh CASE PDC SOURCE_DIR CXX BUILD_DIR
# One case of the tests of --target cuda's command line and files, in a directory of its own. CXX compiles the emitted
# programs against tests/cuda/host's headers, which stand in for the toolkit's.
. "${0%/*}/common.sh"

gpt_small="-D n_layer=3 -D n_embd=32 -D n_head=2 -D n_ctx=20 -D vocab_size=256"

# No file of DIR has a warning, a line wider than 110 columns, or what only one of C11 and C++20 has.
check_sources() {
  for file in "$1"/stage*.cu; do
    "$cc" -x c++ -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I"$source/tests/cuda/host/include" -I"$source/runtime" \
      "$file" || fail "$file does not compile cleanly"
    lacks "$file" 'restrict\|_Alignas\|_Static_assert\|(const struct [a-z_]*\[\])\|(struct [a-z_]*){\|omp '
  done
}

# The offsets and the size of the arena are asserted in the text: these are checks of memory, too.
sources_are_clean() {
  for how in "--precision f32 --stages 2" "--stages 2 --recompute on --schedule flush" "--stages 2 --schedule zb_h1" \
    "--stages 2 --schedule interleaved -D chunks=2" "--replicas 2,1 --schedule gpipe"; do
    expect 0 "$pdc" -S --verify-each --target cuda --precision bf16 $gpt_small -D p_drop=0.1 -D batch=24 \
      --microbatch 2 $how -o gpt "$source/models/gpt_mini.pdm"
    check_sources gpt
  done
  for model in models/mlp models/lenet tests/unit/models/again; do
    expect 0 "$pdc" -S --verify-each --target cuda --precision bf16 -n 1 -o m "$source/$model.pdm"
    check_sources m
  done
}

# Loops that drop out and add up rows are given the current microbatch's numbers, and scratch memory beside them.
profiling_programs_are_clean() {
  for precision in f32 bf16 "bf16 --tensor 2"; do
    expect 0 "$pdc" profile -S --target cuda --precision $precision $gpt_small -D n_ctx=256 -D p_drop=0.1 -o stage0.cu \
      "$source/models/gpt_mini.pdm"
    check_sources .
    contains stage0.cu ', scratch\|(float \*)scratch'
    contains stage0.cu 'pd_now);'
    lacks stage0.cu '\*)pd_now'
  done
}

# Convolutions with batch norms; LSTMs; loops over time; masks, dropout and post-norm blocks.
larger_sources_are_clean() {
  for precision in f32 bf16; do
    expect 0 "$pdc" profile -S --target cuda --precision $precision -o stage0.cu "$source/models/mamba_mini.pdm"
    check_sources .
  done
  for how in "f32 mamba_mini" "bf16 mamba_mini" "f32 rwkv_mini" "bf16 rwkv_mini" "f32 gnmt8" "bf16 gnmt8" "bf16 resnet50" "f32 bert"; do
    set -- $how
    expect 0 "$pdc" -S --verify-each --target cuda --precision $1 -n 1 --memory 400GB -o m "$source/models/$2.pdm"
    check_sources m
  done
}

sources_are_the_same_twice() {
  for precision in f32 tf32 bf16; do
    for name in a b; do
      expect 0 "$pdc" -S --target cuda --precision $precision --stages 2 $gpt_small -o $name "$source/models/gpt_mini.pdm"
    done
    for file in plan.json stage0.cu stage1.cu; do
      cmp a/$file b/$file || fail "$file differs between two runs"
    done
    expect 0 "$pdc" --target cuda --precision $precision --stages 2 $gpt_small --emit source "$source/models/gpt_mini.pdm"
    cat a/stage0.cu a/stage1.cu | cmp - out || fail "--emit source prints something else than -S writes"
  done
}

a_person_can_read_gpt_mini() {
  expect 0 "$pdc" -S --target cuda --precision bf16 -n 2 --split 'h[2]' --microbatch 4 -o g "$source/models/gpt_mini.pdm"
  for file in g/stage0.cu g/stage1.cu; do
    lines=$(wc -l <$file)
    [ "$lines" -lt 1200 ] || fail "$file has $lines lines"
    long=$(awk 'length > 110' $file)
    [ -z "$long" ] || fail "$file: lines are longer than 110 columns: $long"
    contains $file 'Target     CUDA; bf16: '
    contains $file '^#include "cuda/pd_cuda.h"'
  done
  contains g/stage0.cu 'struct h_weights h\[2\]; /\* h.0 .. h.1 \*/'
  contains g/stage0.cu 'alignas(64) pd_bf16 attn_c_attn_weight\[768 \* 256\];'
  contains g/stage0.cu 'struct masters masters; /\* the newest weights in f32 \*/'
  contains g/stage0.cu 'h_forward(&w->h\[1\]'
  contains g/stage0.cu 'mlp_c_fc = pd_matmul_new({.batch = 1, '
  contains g/stage0.cu 'pd_matmul(attn_c_proj_backward, .*, nullptr, '
  contains g/stage0.cu 'pd_matmul_gelu_gradient(mlp_c_fc_backward, '
  contains g/stage0.cu '\.has_masters = true, \.masters = offsetof(struct arena, masters),'
  contains g/stage0.cu '^  alignas(64) float h_1_x\[MICROBATCH \* 128 \* 256\];' # the residual stream
  lacks g/stage0.cu '^ *{[^.]'
  expect 0 "$pdc" -S --target cuda --precision tf32 -n 1 -o t "$source/models/gpt_mini.pdm"
  contains t/stage0.cu '  .tf32 = true,'
  expect 0 "$pdc" profile -S --target cuda --precision tf32 -o t/profile.cu "$source/models/gpt_mini.pdm"
  contains t/profile.cu '  pd_allow_tf32 = true;'
  lacks t/stage0.cu 'pd_bf16\|masters'
  expect 0 "$pdc" -S --target cuda -n 1 -D p_drop=0.1 -o d "$source/models/gpt_mini.pdm"
  contains d/stage0.cu '    pd_at(k);'
  awk '/^static void validate/ { validating = 1 } validating && /pd_at\(k\);/ { found = 1 } END { exit !found }' d/stage0.cu ||
    fail "validation leaves dropout as it is in training"
  lacks d/stage0.cu 'first_sample = \|tf32 = true'
}

# type NAME KIND: "bf16" or "f32" of gpt_mini's buffer.
type() {
  line=$(grep "^buffer [0-9]* $2 $1 " kernels | head -1)
  [ -n "$line" ] || fail "no $2 buffer '$1'"
  case $line in *"] bf16 "*) echo bf16 ;; *) echo f32 ;; esac
}

# What PyTorch's autocast does in bf16, and what it leaves in f32.
calls_are_given_bf16() {
  expect 0 "$pdc" --verify-each --target cuda --precision bf16 -n 1 --emit kernels "$source/models/gpt_mini.pdm"
  mv out kernels
  for buffer in "wte_weight weight" "attn_c_attn_weight weight" "mlp_c_fc_bias weight" "ln_1 saved" \
    "attn_c_attn_qkv saved" "attn_y saved" "mlp_c_fc_h saved" "mlp_c_fc_y saved" "logits saved"; do
    [ "$(type $buffer)" = bf16 ] || fail "$buffer is not bf16"
  done
  for buffer in "wpe_weight weight" "ln_1_weight weight" "attn_c_attn_weight accumulator" "ln_1_mean saved" \
    "attn_scaled_dot_product_attention saved" "x saved" "cross_entropy_entropy figure"; do
    [ "$(type $buffer)" = f32 ] || fail "$buffer is not f32"
  done
  grep '^buffer [0-9]* \(accumulator\|figure\|table\|input\) .*\] bf16 ' kernels && fail "what is added up is rounded"
  expect 0 "$pdc" --target cuda --precision tf32 -n 1 --emit kernels "$source/models/gpt_mini.pdm"
  lacks out '\] bf16 '
}

# crossing STAGE NAME: the types of what crosses, in the order of a channel's table.
crossing() {
  sed -n "/ $2_values\[\] = {/,/^};/p" s/stage$1.cu | sed -n 's/.*\.bytes = .*->\(.*\)}.*/\1/p' | while read -r member; do
    sed -n "/^struct $2 {/,/^};/s/.* \([a-z_0-9]*\) $member\[.*/\1/p" s/stage$1.cu
  done
}

# Whichever side of a cut a value is made and read on.
types_agree_across_cuts() {
  for split in 'h[1].ln_1,h[1].attn.c_proj' 'h[0].mlp,after h[1].mlp.c_proj' 'after h[1].attn,after ln_f'; do
    expect 0 "$pdc" -S --verify-each --target cuda --precision bf16 --split "$split" $gpt_small -o s "$source/models/gpt_mini.pdm"
    for stage in 0 1; do
      [ -n "$(crossing $stage sent)" ] || fail "nothing is sent at '$split'"
      [ "$(crossing $stage sent)" = "$(crossing $((stage + 1)) received)" ] || fail "activations differ at '$split'"
      [ "$(crossing $stage gradients_received)" = "$(crossing $((stage + 1)) gradients_sent)" ] ||
        fail "gradients differ at '$split'"
    done
  done
}

# What crosses a cut between blocks, activations and gradients, is f32, or all bf16: with or without dropout. Plans say
# which, and are taken back for the same.
residual_stream_has_one_type() {
  for kept in f32 bf16; do
    type=float
    [ $kept = bf16 ] && type=pd_bf16
    for dropout in 0 0.1; do
      expect 0 "$pdc" -S --verify-each --target cuda --precision bf16 --residual $kept --split 'h[1]' -D p_drop=$dropout \
        $gpt_small -o s "$source/models/gpt_mini.pdm"
      for what in sent gradients_received; do
        [ "$(crossing 0 $what)" = $type ] || fail "$what with p_drop $dropout: $(crossing 0 $what), not $type"
      done
    done
  done
  contains s/plan.json '"precision": "bf16", "residual": "bf16"'
  expect 0 "$pdc" -S --target cuda --precision bf16 --residual bf16 --plan s/plan.json -D p_drop=0.1 $gpt_small -o again "$source/models/gpt_mini.pdm"
  cmp s/stage0.cu again/stage0.cu || fail "another program from the same plan"
  expect 1 "$pdc" -S --target cuda --precision bf16 --plan s/plan.json -D p_drop=0.1 $gpt_small -o again "$source/models/gpt_mini.pdm"
  contains err PD0603
}

# GELU and its gradient are parts of the products around it: neither is parted from them, so that bits do not depend on
# cuts. In single precision it is a loop of its own.
gelus_are_parts_of_products() {
  expect 0 "$pdc" -S --target cuda --precision bf16 -n 1 $gpt_small -o s "$source/models/gpt_mini.pdm"
  [ "$(grep -c 'pd_matmul_gelu(' s/stage0.cu)" = 1 ] || fail "GELU is not in a block's product"
  [ "$(grep -c 'pd_matmul_gelu_gradient(' s/stage0.cu)" = 1 ] || fail "its gradient is not"
  lacks s/stage0.cu 'pd_sigmoid'
  for place in 'after h[0].mlp.c_fc' 'h[0].mlp.c_proj'; do
    expect 0 "$pdc" -S --target cuda --split "$place" $gpt_small -o f "$source/models/gpt_mini.pdm"
    expect 1 "$pdc" -S --target cuda --precision bf16 --split "$place" $gpt_small -o s "$source/models/gpt_mini.pdm"
    contains err 'PD0503'
    contains err 'is part of the products on either side'
  done
  grep -q 'pd_sigmoid' f/stage*.cu || fail "no GELU in single precision"
}

# What attention and GELU's product give back no loop reads: there the products of the weights' gradients make those of biases.
# What a block gives back loops read anyway. Cuts, dropout, recomputation and the weights pass change nothing about that.
biases_are_parts_of_products() {
  for how in "-n 1 -D p_drop=0" "-n 1 -D p_drop=0.1" "-n 1 --residual bf16" "-n 2 --stages 2 --split h[0].attn" \
    "-n 2 --stages 2 --schedule zb_h1" "-n 2 --stages 2 --recompute on --schedule flush"; do
    expect 0 "$pdc" -S --verify-each --target cuda --precision bf16 $gpt_small -D batch=4 --microbatch 1 -o s $how \
      "$source/models/gpt_mini.pdm"
    cat s/stage*.cu >all
    for layer in attn_c_attn mlp_c_fc; do
      contains all "pd_matmul_sums(${layer}_weight_gradient"
      lacks all "${layer}_bias_gradient"
    done
    for layer in attn_c_proj mlp_c_proj; do
      lacks all "pd_matmul_sums(${layer}_weight_gradient"
    done
  done
  for how in "--precision f32" "--precision tf32"; do
    expect 0 "$pdc" -S --target cuda $how -n 1 $gpt_small -o s "$source/models/gpt_mini.pdm"
    lacks s/stage0.cu 'pd_matmul_sums'
    contains s/stage0.cu 'attn_c_attn_bias_gradient'
  done
  expect 0 "$pdc" -S --precision bf16 -n 1 $gpt_small -o s "$source/models/gpt_mini.pdm"
  lacks s/stage0.c 'pd_matmul_sums'
}

# Keywords of C++, CUDA's names and those of emitted files.
hostile_names_are_harmless() {
  cat >'template.pdm' <<'END'
model operator(width = 8) {
  input new[width];
  target this[width];
  param namespace[width, width] = normal(0.1);
  param blockIdx[width] = ones;
  param nullptr[width] = ones;
  pd_stream = new @ namespace.T;
  cudaMemcpy = tanh(pd_stream) * blockIdx;
  masters = exp(cudaMemcpy * nullptr);
  loss square(masters - this);
}
train operator { batch = 4; optimizer = sgd(lr = 0.1); }
END
  for precision in f32 bf16; do
    expect 0 "$pdc" -S --target cuda --precision $precision -o 'a $(touch injected) "b' template.pdm
    check_sources 'a $(touch injected) "b'
  done
  expect 0 "$pdc" '-###' --target cuda -o 'a $(touch injected) "b' template.pdm
  [ ! -e injected ] || fail "a directory's name was run"
}

# Weights that loops alone read need no masters.
masters_are_of_rounded_weights() {
  cat >scale.pdm <<'END'
model scale(width = 8) {
  input x[width];
  target y[width];
  param gain[width] = ones;
  loss square(x * gain - y);
}
train scale { batch = 4; optimizer = sgd(lr = 0.1); }
END
  expect 0 "$pdc" -S --target cuda --precision bf16 -n 1 -o s scale.pdm
  lacks s/stage0.cu 'masters\|pd_bf16'
  check_sources s
}

targets_replace_each_other() {
  expect 0 "$pdc" -S --stages 2 $gpt_small -o g "$source/models/gpt_mini.pdm"
  : >g/stage0 && : >g/stage1
  expect 0 "$pdc" -S -MD --target cuda --stages 1 $gpt_small -o g "$source/models/gpt_mini.pdm"
  for file in stage0.c stage1.c stage0 stage1; do
    [ ! -e g/$file ] || fail "$file of the build for processors was left"
  done
  contains g/gpt_mini.d 'g/stage0.cu:'
  : >g/stage0
  expect 0 "$pdc" -S --target cuda --stages 1 $gpt_small -o g "$source/models/gpt_mini.pdm"
  [ -e g/stage0 ] || fail "the program of the same target was removed"
  expect 0 "$pdc" -S --stages 1 $gpt_small -o g "$source/models/gpt_mini.pdm"
  [ ! -e g/stage0.cu ] && [ ! -e g/stage0 ] || fail "the build for GPUs was left"
}

options_are_checked() {
  for wrong in "--precision tf32" "--arch sm_90" "--target cuda --threads 2" "--residual bf16" "--target cuda --precision tf32 --residual bf16"; do
    expect 1 "$pdc" -S $wrong "$source/models/mlp.pdm"
    contains err PD0613
  done
  for wrong in "--target gpu" "--precision fp8 --target cuda" "--arch ampere" "--arch sm_9" "--arch sm_90ab" \
               "--arch sm_75"; do
    expect 2 "$pdc" -S $wrong "$source/models/mlp.pdm"
  done
  printf 'garbage\nend cuda f32\n' >measured
  expect 1 "$pdc" profile --target cuda --measured measured "$source/models/mlp.pdm"
  contains err "printed 'garbage', which is not a measurement .PD0604"
  expect 1 "$pdc" profile --target cuda --measured measured --cc /nowhere/nvcc "$source/models/mlp.pdm" # needs no nvcc
  contains err "printed 'garbage', which is not a measurement .PD0604"
  : >measured
  expect 1 "$pdc" profile --target cuda --measured measured "$source/models/mlp.pdm"
  contains err "does not end with the line 'end cuda f32' .PD0604"
  echo 'end cuda f32' >measured
  expect 1 "$pdc" profile --target cuda --measured measured "$source/models/mlp.pdm"
  contains err "did not measure .*PD0604"
  expect 1 "$pdc" profile --target cuda --measured none "$source/models/mlp.pdm"
  contains err "cannot read 'none': .*PD0601"
  expect 2 "$pdc" --target cuda --measured measured "$source/models/mlp.pdm"
  expect 2 "$pdc" profile -S --target cuda --measured measured "$source/models/mlp.pdm"
  for code in PD0609 PD0613; do
    expect 0 "$pdc" explain $code
  done
  expect 0 "$pdc" '-###' --target cuda --arch sm_90 "$source/models/mlp.pdm"
  for flag in '-ccbin [^ "]*[+][+] ' '-std=c++20' '-fmad=false' '-arch=sm_90' 'libpd_runtime_cuda.a' '-lcublasLt' \
              'mlp.build/stage0.cu'; do
    contains err "$flag"
  done
  expect 0 "$pdc" '-###' --target cuda --cc "ccache nvcc" "$source/models/mlp.pdm"
  contains err '^ccache nvcc '
  [ ! -e mlp.build ] || fail "-### wrote something"
  expect 1 "$pdc" --target cuda --cc /nowhere/nvcc "$source/models/mlp.pdm"
  contains err 'PD0606\|PD0609'
  contains err "help: .*'-S'"
  [ ! -e mlp.build ] || fail "a build that failed was left"
}

plans_are_for_a_target() {
  for precision in f32 bf16; do
    expect 0 "$pdc" -S --target cuda --precision $precision -n 2 $gpt_small -o a "$source/models/gpt_mini.pdm"
    contains a/plan.json "\"target\": \"cuda\", \"precision\": \"$precision\""
    expect 0 "$pdc" -S --target cuda --precision $precision --plan a/plan.json $gpt_small -o b "$source/models/gpt_mini.pdm"
    cmp a/stage0.cu b/stage0.cu || fail "another program from the same plan"
  done
  for other in "--target c" "--target cuda" "--target cuda --precision tf32"; do
    expect 1 "$pdc" -S $other --plan a/plan.json $gpt_small -o c "$source/models/gpt_mini.pdm"
    contains err PD0603
  done
  sed 's/"cuda"/"abacus"/' a/plan.json >edited.json
  expect 1 "$pdc" -S --target cuda --plan edited.json $gpt_small -o c "$source/models/gpt_mini.pdm"
  contains err "there is no target 'abacus'"
  grep -v '"target"' a/plan.json >older.json # as pdc wrote them when there was one target
  expect 0 "$pdc" -S --plan older.json $gpt_small -o c "$source/models/gpt_mini.pdm"
}

# Without --memory a GPU of 80 GB; and half as many bytes of activations where they are rounded.
memory_is_a_gpus() {
  expect 1 "$pdc" plan --target cuda -n 1 --microbatch 256 --recompute off "$source/models/bert.pdm"
  contains err 'no plan fits into 1 device with 70.8 GiB'
  expect 0 "$pdc" plan --target cuda -n 1 --microbatch 256 --memory 400GB "$source/models/bert.pdm"
  contains out 'a GPU a rank, f32'
  for precision in f32 bf16; do
    expect 0 "$pdc" -S --target cuda --precision $precision -n 1 --microbatch 8 -o $precision "$source/models/gpt_mini.pdm"
    grep -o '"peak_bytes": [0-9]*' $precision/plan.json | tr -dc '0-9' >$precision/bytes
    contains $precision/stage0.cu "sizeof(struct arena) == $(cat $precision/bytes)"
  done
  [ "$(cat bf16/bytes)" -lt "$(($(cat f32/bytes) * 5 / 6))" ] || fail "bf16 takes more than five sixths of f32's memory"
}

$case
