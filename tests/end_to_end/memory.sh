# Planned peak memory against the processes' memory:  memory.sh PDC
# The operating system's figure excludes mapped files, like the plan. The tolerance is 5 % and 30 MiB, and for the process's
# own memory the libraries'. With shared memory the figure includes the other
# rank's receive slots, up to 1.25 MiB.
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O1 # memory is the same
cat /usr/share/common-licenses/* >text.txt 2>/dev/null

# watch SECONDS: the largest RssAnon + RssShmem, in KiB, of this folder's stage0 and stage1 until they end.
watch() {
  while kill -0 "$1" 2>/dev/null; do
    for stage in 0 1; do
      for pid in $(pidof stage$stage); do
        [ "$(readlink "/proc/$pid/cwd")" = "$work" ] || continue
        awk '/^Rss(Anon|Shmem)/ { sum += $2 } END { print sum }' "/proc/$pid/status" 2>/dev/null >>held.$stage
      done
    done
    sleep 0.05
  done
}

# numbers NAME: the array NAME of the log, a number a line.
numbers() { sed -n "s/.*\"$1\":\[\([^]]*\)\].*/\1/p" log.jsonl | tr ',' '\n'; }

for schedule in 2bw flush; do
  for recompute in off on; do
    taken || continue
    rm -f held.0 held.1
    build gpt -n 2 --stages 2 --schedule $schedule --recompute $recompute --microbatch 1 \
      "$top/models/gpt_mini.pdm" || continue
    launch 2 gpt --data text.txt --steps 8 --log log.jsonl &
    watch $!
    wait $! || { complain "$schedule, recompute $recompute: does not train"; continue; }
    for stage in 0 1; do
      planned=$(numbers planned_peak_bytes | sed -n "$((stage + 1))p")
      said=$(numbers peak_bytes | sed -n "$((stage + 1))p")
      held=$(sort -n held.$stage | tail -n 1)
      name="$schedule, recompute $recompute, stage $stage"
      awk -v planned="$planned" -v said="$said" -v held="$((held * 1024))" -v name="$name" -v beside="$(libraries)" '
        BEGIN {
          limit = planned * 1.05 + 30 * 2^20
          printf "%s: planned %.1f MiB, logged %.1f, seen %.1f\n", name, planned / 2^20, said / 2^20,
            held / 2^20
          exit !(planned > 2^20 && said <= planned + beside && held <= limit && said >= held - 2.5 * 2^20 &&
                 said >= planned * 0.9)
        }' || complain "$name: memory"
    done
  done
done

# Frozen weights have one version, no gradients and no moments, and the peak is as much lower.
number() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" "$2/plan.json" | sed -n 1p; }
build trained -n 2 --stages 2 --schedule 2bw --microbatch 1 --split 'h[2]' "$top/models/gpt_mini.pdm"
build frozen -n 2 --stages 2 --schedule 2bw --microbatch 1 --split 'h[2]' -D 'freeze="wte|wpe|h.0|h.1"' \
  "$top/models/gpt_mini.pdm"
[ "$(number gradient_bytes frozen)" = 0 ] && [ "$(number optimizer_bytes frozen)" = 0 ] ||
  complain "frozen weights have gradients or moments"
[ $((2 * $(number weight_bytes frozen))) = "$(number weight_bytes trained)" ] || complain "frozen weights have versions"
saved=$(($(number peak_bytes trained) - $(number peak_bytes frozen)))
least=$(($(number weight_bytes frozen) + $(number gradient_bytes trained) + $(number optimizer_bytes trained)))
[ $saved -ge $least ] || complain "freezing saves $saved bytes of the peak, not $least"
# train_only of all others, and freeze with them as exceptions, give the same memory.
build only -n 2 --stages 2 --schedule 2bw --microbatch 1 --split 'h[2]' -D 'train_only="h.2|h.3|ln_f"' \
  "$top/models/gpt_mini.pdm"
sed 's/^  batch            = 8;/&\n  freeze "*" except "h.2 | h.3 | ln_f";/' "$top/models/gpt_mini.pdm" >gpt_mini.pdm
grep -q freeze gpt_mini.pdm || complain "nothing is frozen"
build except -n 2 --stages 2 --schedule 2bw --microbatch 1 --split 'h[2]' gpt_mini.pdm
for plan in only except; do
  for what in gradient_bytes optimizer_bytes weight_bytes peak_bytes; do
    [ "$(number $what $plan)" = "$(number $what frozen)" ] || complain "$plan: other $what than freeze's"
  done
done
exit $failed
