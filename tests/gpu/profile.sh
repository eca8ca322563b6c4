#!/bin/sh
# The program that `pdc profile --target cuda` compiles runs, on tests/cuda_host:  profile.sh PDC COMPILE
# It times every distinct kernel of the model once, prints what pdc reads, and a table for people.
pdc=$1 compile=$2
. "$(dirname "$0")/../launch.sh"

# times PRECISION MODEL OPTIONS...
times() {
  precision=$1 model=$2
  shift 2
  rm -rf program && mkdir program
  "$pdc" profile -S --target cuda --precision "$precision" -o program/stage0.cu "$@" "$model" ||
    { complain "pdc profile -S of $model"; return; }
  "$pdc" --emit kernels --target cuda --precision "$precision" --stages 1 "$@" "$model" >kernels || complain "--emit kernels"
  sh "$compile" program && program/stage0 >times && program/stage0 --table >table || { complain "$model does not run"; return; }
  grep -vcE '^[0-9a-f]{16} [0-9.e+-]+$' times >wrong && complain "$(cat wrong) lines are no measurement"
  [ "$(cut -d ' ' -f 1 times | sort -u | wc -l)" = "$(wc -l <times)" ] || complain "a kernel is timed twice"
  [ "$(wc -l <times)" -gt 5 ] && [ "$(wc -l <table)" = "$(wc -l <times)" ] || complain "kernels are missing"
  grep -vcE '^\{"kernel": "[a-z0-9_]+", "count": [0-9]+, "bytes": [0-9]+, "operations": [0-9]+, "seconds": [0-9.e+-]+\}$' table >wrong &&
    complain "$(cat wrong) lines of the table are amiss"
}

times f32 "$top/tests/bits/images.pdm" --microbatch 2
times bf16 "$top/models/gpt_mini.pdm" -D n_layer=2 -D n_embd=64 -D n_head=2 -D n_ctx=32 --microbatch 2
[ "$(sed -n 's/.*"kernel": "attn", "count": \([0-9]*\).*/\1/p' table)" = 2 ] || complain "two blocks have two attentions"
exit $failed
