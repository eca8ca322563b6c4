# Sourced by tests of models that spill: plans in which some of the memory that all would take is to be had.

# planned FILE: its bytes in memory.
planned() { sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$1" | head -1; }

# with_memory PLAN BYTES PERCENT: the plan with so many bytes, of which blocks that stay may fill a part.
with_memory() { sed 's/"memory_bytes": [0-9]*, "kept_percent": [0-9]*/"memory_bytes": '"$2"', "kept_percent": '"$3/" "$1"; }

# limited FILE SHARE PERCENT MICROBATCH CUTS OPTIONS... MODEL: writes a plan in which blocks have, of the memory between
# the least that works and all, a share in percent.
limited() {
  file=$1 of_all=$2 percent=$3 size=$4 cuts_at=$5
  shift 5
  "$pdc" --precision "${of_c:-f32}" --emit plan -n 1 --schedule spilled --microbatch "$size" --split "$cuts_at" "$@" >all.json &&
    with_memory all.json 1 0 >one.json &&
    "$pdc" --precision "${of_c:-f32}" --emit plan --plan one.json "$@" >least.json ||
    complain "no plan: $cuts_at $*"
  grep -q '"memory_bytes"' all.json || complain "it does not spill: $cuts_at $*"
  least=$(planned least.json) all=$(planned all.json)
  with_memory all.json $((least + (all - least) * of_all / 100)) "$percent" >"$file"
}
