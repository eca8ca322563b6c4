# Replicas that reduce gradients by buckets during the backward pass give the same bits as with a reduction at once:
#   buckets.sh PDC CASE
pdc=$1
. "$(dirname "$0")/common.sh"
level=-O0 more_flags=-Wall,-Wextra,-Werror

# bucketed REPLICAS OPTIONS...: builds with both, and compares all that a training leaves.
bucketed() {
  taken || return
  replicas=$1
  shift
  stages=$(echo "$replicas" | tr , '\n' | wc -l) all=$(echo "$replicas" | tr , + | sed 's/^/echo $((/; s/$/))/' | sh)
  all=$((all * tensor)) split=
  [ "$stages" = 1 ] || split="--split h[1]"
  for way in whole buckets; do
    bucket=$([ $way = whole ] && echo 1GiB || echo 1)
    $model $way -D batch=12 --stages "$stages" $split --replicas "$replicas" --bucket $bucket "$@" || return
  done
  ! grep -q pd_bucket_complete whole/stage*.c* || complain "$*: a program with one bucket completes several"
  [ $(grep -c 'pd_bucket_complete([0-9]*);' buckets/stage*.c* | sed 's/.*://' | sort -n | tail -n 1) -ge 1 ] ||
    complain "$*: too few buckets"
  train_tiny $all whole || return
  runs "$@"
}

# runs OPTIONS...: a training in buckets for each of $ways.
runs() {
  echo "$ways" | while read -r way; do
    train_tiny $all buckets --trace trace.json $way </dev/null && same whole buckets
    [ $failed = 0 ] || exit 1
    case $way in *--graphs*) continue ;; esac # as one piece of work a pass says nothing before its end
    [ "$(early)" -gt 0 ] || complain "$* $way: no bucket begins before its pass has ended"
    [ $failed = 0 ] || exit 1
  done || failed=1
}

# Reductions of a rank that begin within a backward pass of it.
early() {
  python3 - <<'END'
import json
events = [e for e in json.load(open("trace.json"))["traceEvents"] if e["ph"] == "X"]
passes = [e for e in events if e["name"].startswith("B")]
print(sum(any(p["pid"] == e["pid"] and p["ts"] < e["ts"] < p["ts"] + p["dur"] for p in passes)
          for e in events if e["cat"] == "reduce"))
END
}

model=tiny_gpt tensor=1 ways="--comm shared
--comm mpi
--check-messages
--audit 2"
case $2 in
flush)
  bucketed 2 --schedule flush --microbatch 3
  bucketed 3 --schedule flush --microbatch 4 # the batch's only microbatch of a rank
  ways="--comm mpi"
  bucketed 2,2 --schedule flush --microbatch 1 --recompute on
  bucketed 1,3 --schedule gpipe --microbatch 2
  ;;
2bw) # one stage has a whole batch for its exchange: its buffers are free no earlier than pd_exchange
  ways="--comm shared
--comm mpi"
  bucketed 2,2 --schedule 2bw --microbatch 1
  bucketed 2,1 --schedule pipedream --microbatch 1 -D vertical_sync=true -D batch=2
  ;;
tensor)
  tensor=2 ways="--comm mpi"
  bucketed 2 --tensor 2 --schedule flush --microbatch 3
  ;;
images)
  model=tiny_images ways="--comm shared"
  bucketed 2 --schedule flush --microbatch 3
  ;;
cuda)
  target=cuda ways="--comm nccl
--comm mpi
--graphs
--comm mpi --graphs --check-messages
--audit 2"
  bucketed 2 --schedule flush --microbatch 3
  bucketed 3 --schedule flush --microbatch 1
  ways="--comm nccl
--comm mpi"
  bucketed 2,2 --schedule 2bw --microbatch 1
  tensor=2
  bucketed 2 --tensor 2 --schedule gpipe --microbatch 3
  ;;
*) complain "no case '$2'" ;;
esac
exit $failed
