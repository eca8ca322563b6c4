# Retention of checkpoints, failed writes, and checkpoints written in the background.
. "$(dirname "$0")/common.sh"
pdc=$3
data="--data x.npy t.npy --quiet --peak 1e9"
validated="--validation vx.npy vt.npy --validate-every 1"
steps() { ls "$1" | sed -n 's/^step-//p' | sort -n | tr '\n' ' '; }

two 1 $data --steps 20 --save whole.safetensors || complain "a run without checkpoints"
for how in "" --checkpoint-background; do
  rm -rf state log
  two 1 $data --steps 12 --checkpoint state --checkpoint-every 1 --keep 3 --keep-every 5 $how --log log || complain "--keep $how"
  [ "$(steps state)" = "5 10 11 12 " ] || complain "--keep 3 --keep-every 5 $how: $(steps state)"
  "$pdc" checkpoint state >listed || complain "$how: $(cat listed)"
  two 1 $data --steps 20 --checkpoint state --resume --keep 1 $how --save again.safetensors || complain "resuming $how"
  cmp again.safetensors whole.safetensors || complain "$how: other weights"
  [ "$(steps state)" = "20 " ] || complain "--keep 1 $how: $(steps state)"
done
# What a kill leaves while a step is removed or written goes with the next step that is whole; newer ones stay, and so do
# whole ones of versions without manifests.
rm -rf state
two 1 $data --steps 5 --checkpoint state --checkpoint-every 1 || complain "steps to be left"
rm state/step-1/manifest.json state/step-2/manifest.json state/step-2/shard-0-of-2.safetensors state/step-3/*
cp -r state/step-4 state/step-9 && rm state/step-9/manifest.json
two 1 $data --steps 6 --checkpoint state --resume --keep 2 2>err || complain "going on beside steps that are left: $(cat err)"
[ "$(steps state)" = "5 6 9 " ] || complain "steps that a kill left: $(steps state)"
sed -i s/manifest/manifist/ state/step-5/*.safetensors && rm state/step-5/manifest.json
two 1 $data --steps 7 --checkpoint state --resume --keep 1 2>err || complain "going on beside a step without manifest: $(cat err)"
[ "$(steps state)" = "5 7 9 " ] || complain "a whole step without manifest: $(steps state)"
# The copy is all tensors of the shard, in the log and in the planned peak: 4 parameters of 8 floats, one of them on
# both ranks and owned by the first; two versions and two moments.
grep -q '"planned_peak_bytes":\[257,258\],"checkpoint_copy_bytes":\[256,256\]}' log || complain "the copy: $(head -n 1 log)"

# The best by validation stays, and is known after going on.
rm -rf state log
one 1 $data $validated --steps 12 --checkpoint state --checkpoint-every 1 --keep 1 --log log || complain "--keep with validation"
best=$(sed -n 's/.*"step":\([0-9]*\),"validation_loss":\([^,]*\),.*/\2 \1/p' log | sort -g | head -n 1 | cut -d' ' -f2)
[ "$(steps state)" = "$(printf '%s\n' $best 12 | sort -nu | tr '\n' ' ')" ] || complain "best is $best: $(steps state)"
"$pdc" checkpoint state | grep -q "^ *$best .*sound, the best: validation loss [0-9.]*$" || complain "pdc: $("$pdc" checkpoint state)"
echo '{"step":12,"validation_loss":1e-9}' >state/best.json # no later step is better
one 1 $data $validated --steps 16 --checkpoint state --checkpoint-every 1 --keep 1 --resume || complain "going on from the best"
[ "$(steps state)" = "12 16 " ] || complain "the best of before is gone: $(steps state)"
rm state/best.json && mkfifo state/best.json
one 1 $data --steps 17 --checkpoint state --resume 2>err || complain "going on from a best that is unknown: $(cat err)"
grep -q "^pd: warning: 'state/best.json' cannot be read: the best step so far is unknown" err || complain "nothing is said of the best: $(cat err)"
rm state/best.json

# A disk that is full: a folder that cannot be made, a shard that is too large for the file system.
if mkdir small && mount -t tmpfs -o size=64k tmpfs small 2>/dev/null; then
  trap 'umount "$work/small"; rm -rf "$work"' EXIT
  dd if=/dev/zero of=small/filled bs=1k count=64 2>/dev/null
  refused "no room" "0 (stage 0): 'small/state' has room for 0.0 MiB, but a checkpoint takes 0.0 MiB\|0 (stage 0): cannot .* No space left" \
    one 1 $data --steps 4 --checkpoint small/state
  rm -rf small/* && dd if=/dev/zero of=small/filled bs=1k count=40 2>/dev/null
  one 1 $data --steps 30 --checkpoint small/state --checkpoint-every 1 --checkpoint-optional --save again.safetensors 2>err ||
    complain "--checkpoint-optional: $(cat err)"
  grep -q "^pd: warning: .*cannot write .*No space left on device; training continues" err ||
    complain "--checkpoint-optional: $(cat err)"
  "$pdc" checkpoint small/state >listed && grep -q 'goes on from step' listed || complain "a full disk: $(cat listed)"
  for how in "" --checkpoint-background; do
    rm -rf small/state
    refused "a full disk $how" "0 (stage 0): cannot write 'small/state/.*': No space left on device" \
      one 1 $data --steps 30 --checkpoint small/state --checkpoint-every 1 $how
    "$pdc" checkpoint small/state >listed || complain "a full disk $how: $(cat listed)"
  done
else
  echo "no file system can be mounted here: a full disk is not tried"
fi
: >plain
mkdir state/step-20 && touch state/step-20/shard-0-of-1.safetensors && rm -r state/step-20 && ln -s ../plain state/step-20
one 1 $data --steps 21 --checkpoint state --checkpoint-every 2 --resume --checkpoint-optional --save again.safetensors 2>err ||
  complain "a step that cannot be written: $(cat err)"
grep -q "^pd: warning: cannot write the checkpoint of step 20: rank 0: cannot write 'state/step-20.*; training continues" err || complain "said: $(cat err)"
grep -c . err | grep -q '^1$' || complain "said: $(cat err)"
"$pdc" checkpoint state | grep -q 'goes on from step 21' || complain "after a failed one: $("$pdc" checkpoint state)"

# A shell's loop, or a queue that starts a job again, needs --resume-or-start alone; the number of ranks may change.
rm -rf state log
for end in 5 11 17; do
  two 1 $data --steps $end --checkpoint state --resume-or-start --keep 2 --log log || complain "the loop, up to $end"
done
one 1 $data --steps 20 --checkpoint state --resume-or-start --keep 2 --log log --save again.safetensors || complain "the loop, on one rank"
cmp again.safetensors whole.safetensors || complain "a loop of launches: other weights"
[ "$(grep -c '"loss"' log)" = 20 ] || complain "a loop of launches: not one line an update"
exit $failed
