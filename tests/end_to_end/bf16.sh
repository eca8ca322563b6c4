# Programs in bf16 train as those in f32 do, in less memory, resume and predict:  bf16.sh PDC
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0

# near A B: losses of B within 2^-8 of A's, which is what a rounding of numbers in bf16 is worth.
near() {
  for run in "$1" "$2"; do sed -n 's/.*loss":\([^,]*\),.*/\1/p' "$run.jsonl" >"$run.losses"; done
  paste "$1.losses" "$2.losses" | awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= $1 / 256)) bad = bad $0 "\n" }
    END { if (NR < 12 || bad) { print bad; exit 1 } }' || complain "$2: other losses than $1"
}
peak() { grep -o '"peak_bytes": [0-9]*' "$1/plan.json" | head -n 1 | tr -dc 0-9; }

for model in gpt llama images sequences; do
  of_c=f32 && "tiny_$model" "f32_$model" -n 2 --stages 2 --schedule flush --microbatch 2 && train_tiny 2 "f32_$model" || continue
  of_c=bf16 && "tiny_$model" "$model" -n 2 --stages 2 --schedule flush --microbatch 2 && train_tiny 2 "$model" || continue
  near "f32_$model" "$model"
  cmp -s "f32_$model.figures" "$model.figures" && complain "$model: bf16 changes nothing"
done
[ "$(peak gpt)" -lt "$(peak f32_gpt)" ] || complain "no less memory than in f32"

# A checkpoint in the middle, resumed on another plan, ends in the same bytes; so do threads.
of_c=bf16
mv gpt.figures usual.figures && mv gpt.safetensors usual.safetensors
OMP_NUM_THREADS=2 tiny_gpt threads -n 1 --threads 2 --schedule flush --microbatch 2 &&
  OMP_NUM_THREADS=2 launch 1 threads --data train.txt --steps 12 --seed 5 --log threads.jsonl --save threads.safetensors &&
  cmp usual.safetensors threads.safetensors || complain "two threads on one stage make other weights"
launch 2 gpt --data train.txt --steps 5 --seed 5 --checkpoint state --log half.jsonl || complain "--checkpoint"
launch 1 threads --data train.txt --steps 12 --seed 5 --checkpoint state --resume --save whole.safetensors --log half.jsonl ||
  complain "--resume"
cmp usual.safetensors whole.safetensors || complain "a resumed run makes other weights"

# What is trained is what inference reads: losses over the same data.
tiny_gpt forward --infer --microbatch 2
$mpirun -n 1 forward/infer --data validation.txt --init usual.safetensors --log infer.jsonl --quiet ||
  complain "infer in bf16"
trained=$(grep -o '"validation_loss":[^,]*' usual.figures | tail -n 1)
[ -n "$trained" ] && grep -q "${trained#\"validation_}" infer.jsonl || complain "infer: another loss than training's: $trained"
exit $failed
