# Results are bit-identical for any cuts and recomputation:  partitions.sh PDC SCHEDULE MODEL STAGES...
pdc=$1 schedule=$2 model=$3
. "$(dirname "$0")/common.sh"
shift 3

"tiny_$model" sequential --schedule sequential --microbatch 1 && train_tiny 1 sequential
for stages in "$@"; do
  for recompute in off on; do
    name=${stages}_$recompute level=
    [ "$name" = 1_off ] || taken || continue
    [ $recompute = off ] || level=-O0
    "tiny_$model" "$name" -n "$stages" --stages "$stages" --schedule "$schedule" --microbatch 1 \
      --recompute $recompute && train_tiny "$stages" "$name" || continue
    [ "$name" = 1_off ] || same 1_off "$name"
    # The last stage has one microbatch in flight and never recomputes.
    wanted=0
    [ $recompute = on ] && wanted=$((stages - 1))
    [ "$(grep -c '"whole": true' "$name/plan.json")" = $wanted ] ||
      complain "$name: not $wanted stages recompute"
  done
done
case $schedule in
flush) same sequential 1_off ;;
2bw) cmp -s sequential.figures 1_off.figures && complain "an update of delay changes nothing" ;;
esac
exit $failed
