#!/bin/sh
# The program that `pdc profile --target cuda` compiles runs, on tests/cuda/host:  profile.sh PDC COMPILE
# It times every distinct kernel of the model once, prints what pdc reads, and a table for people; where the model spills, also what
# the link to the host takes.
pdc=$1 compile=$2
. "$(dirname "$0")/../launch.sh"

# lines FILE PATTERN: all are like that.
lines() {
  grep -vE "$2" "$1" >wrong && { cat wrong >&2; complain "lines of $1 are not as they must be"; }
}

# measure PRECISION MODEL OPTIONS...
measure() {
  precision=$1 model=$2 types="($1|f32)"
  shift 2
  rm -rf program && mkdir program
  "$pdc" profile -S --target cuda --precision "$precision" -o program/stage0.cu "$@" "$model" &&
    sh "$compile" program && program/stage0 >times && program/stage0 --table >table ||
    { complain "$model does not run"; return; }
  [ "$(tail -n 1 times)" = "end cuda $precision" ] || complain "the output has no end"
  sed '/^end /d; /_device \|^at_home \|^algorithm \|^library \|^attention \|^cudnn /d' times >kernels
  grep '_device ' times >link
  grep '^at_home ' times >home
  grep '^algorithm ' times >algorithms
  grep '^{"algorithm"' table >products
  grep '^attention ' times >attentions
  grep '^{"engine"' table >theirs
  sed -i '/^{"algorithm"/d; /^{"engine"/d' table
  lines kernels '^[0-9a-f]{16} [0-9.e+-]+$'
  lines link '^(to|from)_device [1-9][0-9.]*e-[0-9]+$'
  lines home '^at_home [1-9][0-9.]*e-[0-9]+$'
  # Numbers of an algorithm, what the product takes by it and by the one that is listed first, the product.
  lines algorithms '^algorithm( [0-9]+){9}( [0-9.e+-]+){2} '"$types"' ([0-9]+ x )?\[[0-9]+, [0-9]+\]( by columns)? @ \[.*, at (16|4|2) bytes$'
  lines products '^\{"algorithm": \[[0-9]+(, [0-9]+){8}\], "seconds": [0-9.e+-]+, "first_seconds": [0-9.e+-]+, "product": ".*"\}$'
  # Engine, knobs, workspace, what the attention takes by it and by our own kernels, the attention.
  lines attentions '^attention [0-9]+ ([0-9]+(,[0-9]+)*|-) [0-9]+( [0-9.e+-]+){2} (for|back)ward bf16 \[([0-9]+(, )?){4}\] of \[[0-9]+, [0-9]+\]( causal)?$'
  lines theirs '^\{"engine": [0-9]+, "knobs": \[[0-9, ]*\], "workspace": [0-9]+, "cudnn_seconds": [0-9.e+-]+, "own_seconds": [0-9.e+-]+, "attention": ".*"\}$'
  [ "$(grep -c '^cudnn [1-9][0-9]* [A-Za-z]' times)" = 1 ] || complain "cuDNN is not told once"
  [ "$(grep -c '^library [1-9][0-9]* [A-Za-z]' times)" = 1 ] || complain "the library is not told once"
  [ -s algorithms ] && [ "$(wc -l <algorithms)" = "$(wc -l <products)" ] || complain "products have no algorithms"
  awk '$11 > 1.05 * $12' algorithms | grep . && complain "others would be faster"
  lines table '^\{"kernel": "[a-z0-9_A-Z]+", "count": [0-9]+, "bytes": [0-9]+, "operations": [0-9]+, "seconds": [0-9.e+-]+\}$'
  [ "$(cut -d ' ' -f 1 kernels | sort -u | wc -l)" = "$(wc -l <kernels)" ] || complain "a kernel is timed twice"
  [ "$(wc -l <kernels)" -gt 5 ] && [ "$(wc -l <table)" = "$(wc -l <kernels)" ] || complain "kernels are missing"
}

# count KERNEL: how many the model has of these.
count() {
  sed -n "s/.*\"kernel\": \"$1\", \"count\": \([0-9]*\).*/\1/p" table
}

measure f32 "$top/tests/bits/images.pdm" --microbatch 2 --spill host
[ "$(wc -l <link)" = 2 ] && [ "$(wc -l <home)" = 1 ] || complain "the link, or the host beside it, is not measured"
measure bf16 "$top/models/gpt_mini.pdm" -D n_layer=2 -D n_embd=64 -D n_head=2 -D n_ctx=32 --microbatch 2
measure bf16 "$top/models/gpt_mini.pdm" -D n_layer=2 -D n_embd=64 -D n_head=2 -D n_ctx=32 --microbatch 2 --tensor 2
[ "$(wc -l <attentions)" = 2 ] && [ "$(wc -l <theirs)" = 2 ] || complain "an attention and its gradient are not told"
[ "$(count attn)" = 2 ] && [ "$(count ln_1)" -ge 2 ] || complain "two blocks have two attentions and norms"
[ ! -s link ] || complain "a link is measured that nothing crosses"
exit $failed
