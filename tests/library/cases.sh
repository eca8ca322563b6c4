#!/bin/sh
# Models as C libraries:  cases.sh CASE PDC CC
case=$1 pdc=$2 cc=$3
. "$(dirname "$0")/../launch.sh"
golden=$top/tests/golden/inference
weights=$golden.init.safetensors
images=$golden.image.npy
samples=23
gpt2="-D n_layer=3 -D n_head=2 -D n_embd=16 -D n_ctx=24 -D vocab_size=61 $top/models/gpt2.pdm"
llama="-D n_layer=3 -D n_head=4 -D n_kv_head=2 -D n_embd=16 -D hidden=24 -D n_ctx=24 -D vocab_size=61 $top/models/llama_mini.pdm"
mamba="-D n_layer=3 -D n_embd=16 -D n_state=4 -D n_ctx=24 -D vocab_size=61 $top/models/mamba_mini.pdm"

# library DIR OPTIONS... MODEL: a library whose functions start with "model".
library() {
  dir=$1
  shift
  "$pdc" library --name model --quiet --cc "$cc" -o "$dir" "$@" >build.log 2>&1 && return
  head -n 30 build.log >&2
  complain "pdc library $*"
  exit 1
}

# use DIR PROGRAM [FLAGS...]: compiles a program of this folder with the library.
use() {
  dir=$1 program=$2
  shift 2
  "$cc" -O1 -Wall -Wextra -Werror -I"$dir" -I"$here" "$here/$program.c" -o "$dir/$program" "$dir/libmodel.so" \
    -Wl,-rpath,"$PWD/$dir" -lpthread "$@" || { complain "$program does not compile"; exit 1; }
}

outputs_are_those_of_infer() {
  for microbatch in 1 4; do
    for precision in f32 bf16; do
      name=$microbatch.$precision
      "$pdc" infer --quiet --microbatch $microbatch --precision $precision -o infer.$name "$golden.pdm" ||
        complain "infer does not build"
      infer.$name/infer --quiet --init "$weights" --data "$images" --predict logits=logits.npy features=features.npy \
        flipped=flipped.npy || complain "infer does not run"
      library library.$name --microbatch $microbatch --precision $precision --threads 2 "$golden.pdm"
      use library.$name run
      for threads in 0 1 2; do
        (cd library.$name && ./run "$weights" "$images" $samples $threads) || complain "$name does not run"
        for output in logits features flipped; do
          tail -c +129 $output.npy | cmp - library.$name/out.$output || complain "$name, $threads threads: other $output"
        done
      done
    done
  done
  mkdir folder
  cp "$weights" folder/model.safetensors
  (cd library.4.f32 && cp out.logits before && ./run ../folder "$images" $samples 0 && cmp before out.logits) ||
    complain "a folder is not read as a file"
}

# The library has no loss. In the second model a product of a loss alone reads an output, which infer rounds then.
outputs_that_losses_read_are_those_of_infer() {
  sed '/probabilities/d' "$golden.pdm" >single.pdm
  sed -i 's/output flipped = image . -1/turned = image * 0.7;\n  output flipped = turned/' single.pdm
  sed 's/^  loss.*/&\n  loss 0.5 * (reshape(turned, [18, 6]) @ equal(reshape(iota(6), [6, 1]), iota(6)));/' single.pdm >product.pdm
  for model in single product; do
    "$pdc" infer --quiet --precision bf16 -o infer $model.pdm || complain "infer does not build"
    infer/infer --quiet --init "$weights" --data "$images" --predict logits=logits.npy features=features.npy \
      flipped=$model.npy || complain "infer does not run"
    library $model --precision bf16 $model.pdm
    use $model run
    (cd $model && ./run "$weights" "$images" $samples 1) || complain "the library does not run"
    for output in logits features flipped; do
      [ $output != flipped ] || cp $model.npy flipped.npy
      tail -c +129 $output.npy | cmp - $model/out.$output || complain "$model: other $output"
    done
  done
  ! cmp -s single.npy product.npy || complain "the product rounds nothing"
}

# same NAME TOKENS TEMPERATURE TOP_K TOP_P SEED: the tokens of `generate`.
same() {
  drawing="--temperature $3 --top-k $4 --top-p $5 --seed $6"
  [ "$3" = 0 ] && drawing="--temperature 0"
  # shellcheck disable=SC2086
  generate.$1/generate --quiet --init "$top/tests/generate/$model.safetensors" --prompt-tokens 7,3,52,11,30 \
    --output tokens --tokens $2 $drawing </dev/null >expected 2>/dev/null || complain "$1: generate does not run"
  library.$1/generate "$top/tests/generate/$model.safetensors" "$3" "$4" "$5" "$6" "$2" 7 3 52 11 30 >found ||
    complain "$1: the library does not run"
  cmp expected found || complain "$1: other tokens at temperature $3"
}

tokens_are_those_of_generate() {
  for name in gpt2.cache gpt2.no-cache gpt2.block llama.cache llama.bf16 mamba.cache mamba.block; do
    model=${name%.*}
    case ${name#*.} in
    cache) options= ;;
    no-cache) options=--no-cache ;;
    block) options="--block 2" ;;
    bf16) options="--precision bf16" ;;
    esac
    eval "source=\$$model"
    # shellcheck disable=SC2086,SC2154
    "$pdc" generate --quiet $options -o generate.$name $source || complain "generate does not build"
    # shellcheck disable=SC2086
    library library.$name --generate $options $source
    use library.$name generate
    same $name 12 0 0 1 1
    same $name 19 0.8 20 0.9 5
    same $name 40 1 0 1 7
    [ "${name#*.}" = cache ] || continue
    cut -d, -f 1-12 "$top/tests/generate/$model.tokens" >first
    library.$name/generate "$top/tests/generate/$model.safetensors" 0 0 1 1 12 7 3 52 11 30 | cmp - first ||
      complain "$model: other tokens than PyTorch's"
  done
  # Hugging Face folders, models and weights; those of mixtral have a tensor for each expert.
  for name in llama mixtral; do
    folder=$top/tests/import/folders/$name
    "$pdc" generate --quiet -D n_ctx=16 -o generate.$name "$folder" || complain "generate does not build"
    library library.$name --generate -D n_ctx=16 "$folder"
    use library.$name generate
    generate.$name/generate --quiet --init "$folder" --prompt-tokens 3,4,5 --tokens 8 --temperature 0 --output tokens >expected
    library.$name/generate "$folder" 0 0 1 1 8 3 4 5 | cmp - expected || complain "$name: other tokens"
  done
  python3 "$here/add_stack.py" "$folder/model.safetensors" both.safetensors || complain "add_stack.py"
  library.mixtral/generate both.safetensors 0 0 1 1 8 3 4 5 >said 2>&1 && complain "experts that files hold twice are loaded"
  grep -q "'model.layers.0.block_sparse_moe.experts.down_proj' is also there as one tensor for each expert" said || complain "$(cat said)"
}

texts_are_those_of_generate() {
  options="-D n_layer=2 -D n_head=2 -D n_embd=16 -D n_ctx=64 -D vocab_size=300 $top/models/gpt2.pdm"
  seq 300 | tr '\n' ' ' >data.txt
  "$pdc" --quiet -o train $options && "$pdc" generate --quiet -o generate.text $options || complain "pdc"
  PDC=$pdc train/train --quiet --data data.txt --tokenizer "$top/tests/chats/tokenizer/tokenizer.json" --steps 0 --seed 4 \
    --save w.safetensors || complain "no weights"
  library text --generate $options
  use text texts
  for prompt in "2 + 2 is" "Übermut tut"; do
    for stop in "" e "th"; do
      generate.text/generate --quiet --init w.safetensors --tokenizer "$top/tests/chats/tokenizer/tokenizer.json" --prompt "$prompt" \
        --tokens 30 --temperature 0 --stop ${stop:+"$stop"} </dev/null >expected || complain "generate does not run"
      text/texts w.safetensors "$top/tests/chats/tokenizer" 30 "$stop" "$prompt" >found || complain "the library does not run"
      [ -n "$stop" ] || [ "$(wc -c <found)" -gt 20 ] || complain "hardly a text"
      cmp found expected || complain "another text behind '$prompt' with the stop '$stop'"
    done
  done
}

prompts_that_get_shorter_have_the_tokens_of_new_instances() {
  sed 's/llama_block(x, n_head, n_kv_head, hidden,/llama_block(x, n_head, n_kv_head, hidden, window = 5 + 2 * i,/' \
    "$top/models/llama_mini.pdm" >windowed.pdm
  for block in 3 16; do
    library one --generate --threads 1 --block $block -D n_layer=3 -D n_head=4 -D n_kv_head=2 -D n_embd=16 -D hidden=24 -D n_ctx=48 \
      -D vocab_size=61 windowed.pdm
    use one shorter
    one/shorter "$top/tests/generate/llama.safetensors" || complain "--block $block"
  done
}

instances_run_at_the_same_time() {
  library one --microbatch 4 "$golden.pdm"
  use one threads
  one/threads "$weights" "$images" $samples || complain "two instances on two threads"
}

wrong_calls_are_errors() {
  mkdir damaged
  python3 "$here/damage.py" "$weights" damaged || { complain "damage.py"; return; }
  library one "$golden.pdm"
  use one errors
  one/errors "$weights" damaged >out 2>&1 || { cat out >&2; complain "errors of a model"; }
  [ -s out ] && complain "the library prints: $(cat out)"
  # shellcheck disable=SC2086
  library two --generate $gpt2
  use two tokens_errors
  two/tokens_errors "$top/tests/generate/gpt2.safetensors" || complain "errors of a generator"
}

# No name but the header's is visible, in the archive and in the shared library; nothing ends the process or prints.
only_the_header_has_names() {
  # shellcheck disable=SC2086
  library one --generate $gpt2
  nm -g --defined-only one/libmodel.a | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort >names
  printf 'model_%s\n' bytes decode encode free generate generate_text load new tokenizer | cmp - names || complain "the archive has other names: $(cat names)"
  nm -D --defined-only one/libmodel.so | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort | cmp - names || complain "the shared library has other names"
  nm -u one/libmodel.a | sed 's/.* //; s/@.*//' |
    grep -xE 'exit|_exit|abort|signal|sigaction|raise|kill|printf|puts|putchar|fputs|fwrite|perror|setenv|dnnl_set_.*|MPI_.*' &&
    complain "the library calls these"
  ldd one/libmodel.so | grep -i mpi && complain "the shared library needs MPI"
  printf '#include "model.h"\nint main() { return model_bytes() ? model_new(nullptr, 0, 0, nullptr) == nullptr : 1; }\n' >use.cc
  "${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror -Ione use.cc -o use one/libmodel.so -Wl,-rpath,"$PWD/one" && ./use ||
    complain "C++ does not take the header"
  "$cc" -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c one/model.h || complain "the header warns"
  [ "$(awk 'length > 115' one/model.h one/model.c | wc -l)" = 0 ] || complain "lines are too long"
}

two_libraries_go_together() {
  library one "$golden.pdm"
  # shellcheck disable=SC2086
  "$pdc" library --generate --quiet --cc "$cc" -o two $gpt2 || complain "the second does not build"
  cat >both.c <<'END'
#include "gpt2.h"
#include "model.h"
int main(void) {
  model *a = model_new(0, 0, 0, 0);
  gpt2 *b = gpt2_new(0, 0, 0, 0);
  model_free(a), gpt2_free(b);
  return !a || !b;
}
END
  omp=$("$pdc" library -### --name x "$golden.pdm" 2>&1 | tr ' ' '\n' | grep '^-L' | tr '\n' ' ')
  # shellcheck disable=SC2086
  "$cc" -Ione -Itwo both.c -o both one/libmodel.a two/libgpt2.a $omp -lomp -ldnnl -lcjson -lpthread -lm && ./both ||
    complain "two archives in a program"
}

# The emitted file and the runtime's sources, compiled with sanitizers.
sanitizers_find_nothing() {
  flags="-std=gnu11 -O1 -g -march=native -ffp-contract=off -fno-math-errno -fno-strict-aliasing -fopenmp \
    -fsanitize=address,undefined -fno-sanitize-recover=undefined -I$top/runtime/single -I$top/runtime"
  files=$(sed -n 's/^library //p' "$top/runtime/folders" | tr ' ' '\n' | while read -r name; do
    case $name in *.c) echo "$top/runtime/$name" ;; *) ls "$top/runtime/$name"/*.c ;; esac
  done | grep -v "kernels/rates.c\|kernels/limit.c")
  mkdir damaged
  python3 "$here/damage.py" "$weights" damaged || { complain "damage.py"; return; }
  library one -S --microbatch 4 "$golden.pdm"
  # shellcheck disable=SC2086
  library two -S --generate $llama
  mkdir objects
  (cd objects && for file in $files; do echo "$file"; done | xargs -P 2 -n 1 "$cc" $flags -c) || { complain "the runtime"; return; }
  for program in run errors threads; do
    # shellcheck disable=SC2086
    "$cc" $flags -Ione -I"$here" one/model.c "$here/$program.c" objects/*.o -o $program -lomp -ldnnl -lcjson -lpthread -lm ||
      complain "$program does not compile"
  done
  # shellcheck disable=SC2086
  "$cc" $flags -Itwo -I"$here" two/model.c "$here/generate.c" objects/*.o -o generate -lomp -ldnnl -lcjson -lpthread -lm ||
    complain "generate does not compile"
  export ASAN_OPTIONS=detect_leaks=1 LSAN_OPTIONS="suppressions=$here/leaks:print_suppressions=0"
  ./run "$weights" "$images" $samples 1 && ./errors "$weights" damaged && ./threads "$weights" "$images" $samples &&
    ./generate "$top/tests/generate/llama.safetensors" 0.8 20 0.9 5 19 7 3 52 11 30 || complain "the sanitizers object"
}

# refused TEXT OPTIONS...
refused() {
  text=$1
  shift
  "$pdc" library "$@" >out 2>&1 && complain "taken: $*"
  grep -qF -- "$text" out || complain "$*: not '$text': $(cat out)"
}

# Names that parameters of the header have, too; a member that is renamed shows the model's name.
any_name_compiles() {
  sed 's/output features/output class/; s/features = /class = /; s/relu(y), 0.5);/&/; s/max_pool2d(features/max_pool2d(class/' \
    "$golden.pdm" >odd.pdm
  for name in why memory bytes threads path samples in out m; do
    "$pdc" library --name $name --quiet --cc "$cc" -o of.$name "$golden.pdm" || complain "the name '$name'"
  done
  for name in how take context n most prompt drawing; do
    # shellcheck disable=SC2086
    "$pdc" library --name $name --quiet --cc "$cc" -o of.$name --generate $gpt2 || complain "the generator '$name'"
  done
  library odd -S odd.pdm
  grep -q "class_; /\* 'class': \[samples\]" odd/model.h || complain "the header lacks the name 'class'"
}

wrong_options_are_refused() {
  refused "[PD0821]" "$top/models/mlp.pdm"
  refused "--target c only" --target cuda "$golden.pdm"
  refused "--stages is for" --stages 2 "$golden.pdm"
  refused "takes --samples, not --microbatch" --generate --microbatch 2 "$top/models/gpt_mini.pdm"
  refused "--block is for --generate" --block 2 "$golden.pdm"
  library one -S --name 3-d.model "$golden.pdm"
  ls one >names
  grep -qx _3_d_model.h names || complain "the name is not an identifier: $(cat names)"
}

$case
exit $failed
