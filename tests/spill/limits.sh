# Sourced by tests of offload: plans with a part of the memory that the whole model needs.
# $target: c, or cuda, whose programs run on tests/cuda/host, with small pages of device memory, and with updates by the
# device or, with UPDATE=host, by several threads of the host. $place: the offload place; next_place changes it for cuda,
# unless the host updates parameters.
target=${target:-c} place=$work update=
[ "$target" = cuda ] && place=host update=${UPDATE:-device} && export CUDA_HOST_PAGE=4096 CUDA_HOST_LEVEL=-O0
[ "$update" = host ] && export OMP_NUM_THREADS=3

next_place() {
  [ "$target" = c ] || [ "$update" = host ] || { [ "$place" = host ] && place=$work || place=host; }
}

# settings: what plans are for.
settings() {
  [ "$target" = cuda ] && echo "--target cuda --precision ${precision:-f32} --update $update" ||
    echo "--precision ${of_c:-f32}"
}

# planned FILE: its bytes in memory, on the rank that has most.
planned() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1" | sort -n | tail -1; }

# with_memory PLAN BYTES PERCENT: the plan with so many bytes, of which blocks that stay may fill a part.
with_memory() {
  sed -e 's/"memory_bytes": [0-9]*, "kept_percent": [^"]*/"memory_bytes": '"$2"', "kept_percent": '"$3, /" \
    -e 's/"page_bytes": [0-9]*/"page_bytes": 4096/' "$1"
}

# keeping FILE: what parts of the plan save they keep, or recompute, as `keeps` says, a digit a part, in turn: 1 keeps.
keeping() {
  [ -z "${keeps:-}" ] && return
  awk -v keeps="$keeps" '/"recompute": / {
    sub(/"recompute": [a-z]*/, "\"recompute\": " (substr(keeps, n++ % length(keeps) + 1, 1) == "1" ? "false" : "true"))
  } { print }' "$1" >kept.json && mv kept.json "$1"
}

# limited FILE SHARE PERCENT MICROBATCH CUTS OPTIONS... MODEL: writes a plan in which blocks have, of the memory between
# the least that works and all, a share in percent. Of $stages stages; the least is that of the rank that needs most.
limited() {
  file=$1 of_all=$2 percent=$3 size=$4 cuts_at=$5
  shift 5
  "$pdc" $(settings) --emit plan -n "${stages:-1}" --schedule spilled --microbatch "$size" --split "$cuts_at" "$@" >all.json &&
    keeping all.json &&
    with_memory all.json 1 0 >one.json &&
    "$pdc" $(settings) --emit plan --plan one.json "$@" >least.json ||
    complain "no plan: $cuts_at $*"
  grep -q '"memory_bytes"' all.json || complain "it does not spill: $cuts_at $*"
  with_memory all.json $((1 << 50)) 100 >one.json
  "$pdc" $(settings) --emit plan --plan one.json "$@" >all.json || complain "no plan: $cuts_at $*"
  least=$(planned least.json) all=$(planned all.json)
  with_memory all.json $((least + (all - least) * of_all / 100)) "$percent" >"$file"
}

# find_cuts: all legal ones of $model, a line each, with % for blanks.
find_cuts() {
  cuts=$("$pdc" --stop-after cut -d c "$model" 2>&1 |
    sed -n 's/^piece [1-9][0-9]* nodes [0-9.]* "\([^"]*\)".*/\1/p' | tr ' ' '%')
  [ "$(echo "$cuts" | wc -l)" -ge 12 ] || complain "only these cuts: $cuts"
}
