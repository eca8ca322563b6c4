#!/bin/sh
# nanoGPT's small Shakespeare model through the compiler:  shakespeare.sh PDC TEXT [SCHEDULE [SEED [UPDATES]]]
# The configuration is that of nanogpt_shakespeare.py, on two stages; the last tenth of TEXT is held out.
# RATE: the learning rate, 1e-3 unless set; CORRECTION: `delay_correction`, none unless set.
# Prints the held-out loss every 500 updates. KEEP=1 keeps the folder with initial.safetensors, which that
# loop's --init takes.
pdc=$(realpath "$1") given=$(realpath "$2") schedule=${3:-2bw} seed=${4:-1} updates=${5:-2000}
. "$(dirname "$0")/../launch.sh"
bytes=$(wc -c <"$given")
head -c $((bytes - bytes / 10)) "$given" >train.txt
tail -c $((bytes / 10)) "$given" >held_out.txt

build shakespeare -n 2 --stages 2 --microbatch 4 --schedule "$schedule" -D n_layer=4 -D n_head=4 \
  -D n_embd=128 -D n_ctx=64 -D vocab_size=256 -D p_drop=0 -D batch=12 -D clip_norm=1 \
  -D "optimizer=adamw(lr = ${RATE:-1e-3}, betas = (0.9, 0.99), weight_decay = 0.1)" \
  -D "delay_correction=${CORRECTION:-none}" -D "lr_schedule=cosine(warmup = 100, total = 2000, floor = 1e-4)" "$top/models/gpt2.pdm" || exit 1
launch 2 shakespeare --seed "$seed" --steps 0 --save initial.safetensors || exit 1
launch 2 shakespeare --data train.txt --token-type u8 --validation held_out.txt --validate-every 500 --steps "$updates" \
  --seed "$seed" --init initial.safetensors --log log.jsonl --save weights.safetensors || exit 1
sed -n 's/.*"step":\([0-9]*\),"loss":\([0-9.]*\).*/update \1  loss \2/p' log.jsonl |
  awk '$2 == 1 || $2 % 100 == 0'
sed -n 's/.*"step":\([0-9]*\),"validation_loss":\([0-9.]*\).*/update \1  held-out loss \2/p' log.jsonl
exit $failed
