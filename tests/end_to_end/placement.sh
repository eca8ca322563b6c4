# Ranks started in the order of a plan's devices, by `train` and by `app`, are bit-identical.  placement.sh PDC
pdc=$1
launcher=mpirun
. "$(dirname "$0")/common.sh"
level=-O0
form="-n 4 --stages 2 --replicas 2,2 --microbatch 2 --schedule 2bw"
tiny_gpt usual $form && train_tiny 4 usual || exit 1

# started DIR STAGES: the order in which `train` and `app` start stages.
started() {
  [ "$(sed -n "s/^places='\([^']*\)'.*/\1/p" "$1/train" | sed 's/:1//g')" = "$2" ] || complain "$1/train: not $2"
  [ "$(sed 's/.*stage//' "$1/app" | tr '\n' ' ')" = "$2 " ] || complain "$1/app: not $2"
}

sed 's/^ *"stages"/  "adjacent": 1, &/' usual/plan.json >adjacent.json
sed 's/^ *"stages"/  "adjacent": 1, "backward": true, &/' usual/plan.json >backward.json
for order in adjacent:'0 1 0 1' backward:'1 0 1 0'; do
  name=${order%%:*}
  tiny_gpt "$name" --plan "$name.json" && train_tiny 4 "$name" || continue
  started "$name" "${order#*:}"
  grep -q '"adjacent": 1' "$name/plan.json" || complain "$name/plan.json does not keep the placement"
  same usual "$name"
done

$mpirun --app backward/app >app.out 2>&1 && complain "app without --data succeeds"
grep -q 'pd: rank 0 (stage 0): --data PATH is missing' app.out || complain "rank 0 is not stage 0's: $(cat app.out)"
options="--quiet --peak 1e9 --data train.txt --validation validation.txt --validate-every 5 --steps 12 --seed 5"
sed "s|\$| $options --log app.jsonl --save app.safetensors|" backward/app >appfile
$mpirun --app appfile || complain "app does not train"
figures app.jsonl >app.figures
same usual app

# A launch with three ranks of a stage that has two is told.
$mpirun -n 3 usual/stage0 --data train.txt --steps 1 : -n 1 usual/stage1 --data train.txt --steps 1 >wrong.out 2>&1 &&
  complain "three ranks of stage 0 train"
grep -q 'rank 2 runs the program of stage 0, not of stage 1' wrong.out || complain "$(cat wrong.out)"
exit $failed
