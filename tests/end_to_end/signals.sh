# Signals to any rank of a training: SIGUSR1 writes a checkpoint; SIGUSR2, SIGTERM and SIGINT stop after the current update
# with a separate exit status. Resumed runs are bit-identical to uninterrupted ones. All other signals end the launch at
# once.  signals.sh PDC SCHEDULE...
pdc=$1
shift
launcher=mpirun
. "$(dirname "$0")/common.sh"
level=-O0

ranks() { # processes of this folder's ranks that run $1
  for p in $(pidof "$1"); do
    [ "$(readlink "/proc/$p/cwd")" = "$work" ] && echo "$p"
  done
}
await() { # FILE PATTERN: until a line of the file matches, or the launch ends
  while ! grep -qs "$2" "$1" && kill -0 "$running" 2>/dev/null; do sleep 0.02; done
}
# begin DIR OPTIONS...: a run in the background, which has logged an update
begin() {
  dir=$1
  shift
  rm -f run.jsonl
  $mpirun -n 2 "$dir/train" --quiet --peak 1e9 --timeout 60 --data train.txt --steps 1000000 --seed 5 \
    --log run.jsonl "$@" >out 2>err &
  running=$!
  await run.jsonl '"step"'
}
# ends STATUS PATTERN WHAT: the run in the background does, so
ends() {
  wait $running
  status=$?
  [ $status = "$1" ] || complain "$3: exit status $status, not $1: $(cat err)"
  [ "$(grep -c "$2" err)" = 1 ] || complain "$3: expected '$2' once in: $(cat err)"
  [ -z "$(ranks stage0)$(ranks stage1)" ] || complain "$3: a rank outlives its launch"
  [ -z "$(find . -name '*.new' -o -name '*.lock' -o -name .lock)" ] || complain "$3: files are left"
}

for schedule in "$@"; do
  tiny_gpt "$schedule" -n 2 --stages 2 --microbatch 2 --schedule "$schedule" || exit 1
  begin "$schedule" --checkpoint "state_$schedule" --save kept.safetensors
  kill -s USR1 "$(ranks stage0)"
  while ! ls "state_$schedule"/step-*/shard-1-of-2.safetensors >/dev/null 2>&1 && kill -0 $running; do sleep 0.02; done
  asked=$(ls "state_$schedule")
  [ "$(tail -n 1 run.jsonl | grep -c '"end"')" = 0 ] || complain "$schedule: SIGUSR1 ends the run"
  kill -s USR2 "$(ranks stage1)"
  ends 75 "^pd: rank 0 (stage 0): SIGUSR2: stopped after update [0-9]* of 1000000 with a checkpoint in 'state_$schedule'" \
    "$schedule: SIGUSR2 to the last rank"
  at=$(sed -n 's/.*stopped after update \([0-9]*\) of.*/\1/p' err)
  steps=$((at + 6))
  [ -d "state_$schedule/step-$at" ] && [ -d "state_$schedule/$asked" ] || complain "$schedule: checkpoints: $(ls "state_$schedule")"
  [ -e kept.safetensors ] && complain "$schedule: --save has written weights of a run that was stopped"
  grep -q '"event":"end".*"stopped_by":"SIGUSR2"' run.jsonl || complain "$schedule: the log does not say why it ends"
  set -- --data train.txt --seed 5 --steps $steps --quiet
  $mpirun -n 2 "$schedule/train" "$@" --log run.jsonl --checkpoint "state_$schedule" --resume --save on.safetensors ||
    complain "$schedule: does not go on"
  $mpirun -n 2 "$schedule/train" "$@" --log whole.jsonl --save whole.safetensors || complain "$schedule: whole run"
  figures run.jsonl >run.figures
  figures whole.jsonl >whole.figures
  cmp run.figures whole.figures || complain "$schedule: stopped at $at and resumed has other losses"
  cmp on.safetensors whole.safetensors || complain "$schedule: stopped at $at and resumed has other weights"
done
[ -n "${schedule:-}" ] || exit 1

begin "$schedule" --checkpoint forwarded
kill -s USR2 "$(pgrep -P $running)" # mpirun, which hands it on to all ranks
ends 75 "^pd: rank 0 (stage 0): SIGUSR2: stopped after update [0-9]* of" "SIGUSR2 to mpirun"
begin "$schedule"
kill -s INT "$(ranks stage0)"
ends 130 "^pd: rank 0 (stage 0): SIGINT: stopped after update [0-9]* of 1000000 without a checkpoint" "SIGINT, and no checkpoint"
begin "$schedule" --checkpoint state
kill -s TERM "$(ranks stage0)" "$(ranks stage1)" # to all at once, as a batch system does
ends 75 "^pd: rank 0 (stage 0): SIGTERM: stopped after update [0-9]* of" "SIGTERM to all ranks"

# Updates that take longer than mpirun, or --grace, leaves them are reported, once, where a checkpoint would be lost. (The
# ranks alone hear of mpirun's time here.)
# warns PATTERN OPTIONS...: six updates bring this warning alone ("": none).
warns() {
  pattern=$1
  shift
  $brief -n 2 "$schedule/train" --quiet --peak 1e9 --data train.txt --steps 6 --seed 5 "$@" 2>err || complain "long updates: $(cat err)"
  [ "$(grep -c "^pd: warning: an update takes [0-9.]* s, but ${pattern:-no}" err)" = $((${#pattern} > 0)) ] &&
    [ "$(grep -c 'an update takes' err)" = $((${#pattern} > 0)) ] || complain "long updates, $*: not '$pattern': $(cat err)"
}
brief=$mpirun
warns "" --checkpoint unhurried
warns "the grace period is 1e-05 s: a stop would write no checkpoint. help: use --grace 30" --checkpoint hurried --grace 0.00001
brief="$mpirun -x OMPI_MCA_odls_base_sigkill_timeout=0.0001"
warns "mpirun kills ranks 0.0001 s after Ctrl-C or SIGTERM" --checkpoint brief
warns ""

# A rank that is frozen: the others do not reach the end of the update.
begin "$schedule" --checkpoint frozen --grace 1
kill -s STOP "$(ranks stage1)"
kill -s TERM "$(ranks stage0)"
ends 143 "^pd: rank 0 (stage 0): SIGTERM: the current update did not end within the grace period" "a stop that takes longer than --grace"
begin "$schedule" --grace 60
kill -s STOP "$(ranks stage1)"
kill -s INT "$(ranks stage0)"
sleep 0.3
kill -s INT "$(ranks stage0)"
ends 130 "^pd: rank 0 (stage 0): ended by SIGINT" "a second SIGINT"
begin "$schedule"
kill -s BUS "$(ranks stage1)"
ends 135 "exited on signal 7" "SIGBUS from outside"
exit $failed
