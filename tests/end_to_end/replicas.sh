# Replicated stages train like one rank, except for the order of sums; messages and shared memory give the same bits:
#   replicas.sh PDC SCHEDULE REPLICAS...
pdc=$1 schedule=$2
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Wall,-Wextra,-Werror
shift 2

# With two stages and two microbatches an update, `pipedream` with vertical sync uses the weights that `2bw` does,
# unless one microbatch more is in flight.
reference=$schedule options="-D batch=12"
[ "$schedule" = pipedream ] && reference=2bw options="-D batch=2 -D clip_norm=0" synced="-D vertical_sync=true --ahead 1"

# replicated NAME REPLICAS SCHEDULE OPTIONS...: compiles and trains.
replicated() {
  name=$1 replicas=$2 how=$3
  shift 3
  stages=$(echo "$replicas" | tr , '\n' | wc -l) ranks=$(echo "$replicas" | tr , + | sed 's/^/echo $((/; s/$/))/' | sh)
  tiny_gpt "$name" -n "$ranks" --stages "$stages" --replicas "$replicas" --microbatch 1 $options \
    --schedule "$how" "$@" && train_tiny "$ranks" "$name"
}

# close A B: every figure of B within 1e-5 of A's, relative to it.
close() {
  paste -d ' ' "$1.figures" "$2.figures" | tr -c '0-9.e\n-' ' ' | awk '
    { n = NF / 2
      for (i = 1; i <= n; i++) { d = $i - $(i + n); if (d < 0) d = -d; if (!(d <= 1e-5 * $i)) bad = bad " " $0 "\n" } }
    END { if (NR == 0 || bad) { print bad; exit 1 } }' || complain "$2: other figures than $1"
}

replicated reference 1 "$reference"
for replicas in "$@"; do
  taken || continue
  replicated "r$replicas" "$replicas" "$schedule" ${synced:-} || continue
  close reference "r$replicas"
  mv "r$replicas.figures" before.figures && mv "r$replicas.safetensors" before.safetensors
  grep -q '"messages":"shared memory"' "r$replicas.jsonl" || complain "r$replicas: accumulators are not shared"
  train_tiny "$ranks" "r$replicas" --comm mpi && same before "r$replicas"
  train_tiny "$ranks" "r$replicas" --check-messages && same before "r$replicas"
done
exit $failed
