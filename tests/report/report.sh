# Pages of runs that are whole, partial, broken and hostile:  report.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
head -c 560 "$top/tests/reference/text.txt" >train.txt
sed 's/^  metric perplexity.*/  metric accuracy = accuracy(logits, next);/' "$top/models/gpt2.pdm" >gpt2.pdm

build two -n 2 --stages 2 --microbatch 2 --schedule 2bw -D n_layer=2 -D n_head=2 -D n_embd=32 -D n_ctx=16 \
  -D vocab_size=128 -D batch=8 gpt2.pdm || exit 1
launch 2 two --data train.txt --validation train.txt --validate-every 4 --steps 10 --run whole || exit 1
page() { python3 "$here/check_report.py" "$@" || complain "the page: $*"; }
# changed NAME FILE PROGRAM: a copy of the whole run whose FILE went through sed
changed() {
  rm -rf "$1"
  cp -r whole "$1"
  sed -i "$3" "$1/$2"
}
# refused NAME CODE TEXT...: no page, and a message of this code with these texts
refused() {
  name=$1 code=$2
  shift 2
  timeout 20 "$pdc" report "$name" >said 2>&1 && complain "$name is not refused"
  for text in "[$code]" "$@"; do
    grep -qF -- "$text" said || complain "$name: '$text' is not in: $(cat said)"
  done
  [ -e "$name/report.html" ] && complain "$name: a page was written"
}

"$pdc" report whole || complain "pdc report"
page whole/report.html log trace plan predicted picture
"$pdc" report whole -o elsewhere.html && cmp whole/report.html elsewhere.html || complain "-o"

# No named pipe, which may never end; no picture that is another file's.
for part in log.jsonl trace.json plan.json model.svg; do
  rm -rf less
  cp -r whole less
  rm -f less/report.html "less/$part"
  mkfifo "less/$part"
  refused less PD0601 "it is a named pipe"
done
rm less/model.svg
ln -s ../whole/model.svg less/model.svg
refused less PD0601 "cannot read 'less/model.svg': it is a link" "help: copy the picture there"

# Any part may be missing.
for part in log.jsonl trace.json plan.json model.svg; do
  rm -rf less
  cp -r whole less
  rm -f less/report.html "less/$part"
  "$pdc" report less || complain "without $part"
  case $part in
  log.jsonl) page less/report.html trace plan predicted picture ;;
  trace.json) page less/report.html log plan predicted picture ;;
  plan.json) page less/report.html log trace picture ;;
  model.svg) page less/report.html log trace plan predicted ;;
  esac
done
"$pdc" report two || complain "a build's directory"
page two/report.html plan predicted picture
mkdir nothing
refused nothing PD0611 "holds no run"
refused absent PD0611 "'absent' holds no run"
"$pdc" report whole -o nowhere/page.html >said 2>&1 && complain "a page in no folder"
grep -q PD0605 said || complain "unwritable page: $(cat said)"
"$pdc" report >said 2>&1
[ $? = 2 ] && grep -q "the directory of a run" said || complain "report without a directory: $(cat said)"

# A run that was stopped: the last line is not whole.
rm -f whole/report.html
changed cut log.jsonl '/"event":"end"/d'
printf '{"step":11,"lo' >>cut/log.jsonl
"$pdc" report cut || complain "a log cut short"
page cut/report.html log trace plan predicted picture cut
# Lines of a run that was resumed replace those that it repeats.
changed again log.jsonl '/"event":"end"/d'
grep '"step":[789],' whole/log.jsonl >>again/log.jsonl
"$pdc" report again && python3 - <<'P' || complain "a resumed run's log"
import json
data = json.loads(open("again/report.html").read().split('id="data">')[1].split("</script>")[0])
assert data["log"]["step"] == list(range(1, 10)) and len(data["log"]["loss"]) == 9, data["log"]["step"]
P

# What train does not write.
changed broken log.jsonl '3s/,/;/'
refused broken PD0602 "log.jsonl:3:"
changed broken log.jsonl '2s/.*/[1, 2]/'
refused broken PD0612 "log.jsonl:2:1"
changed broken log.jsonl '2s/.*/{"stepp": 1}/'
refused broken PD0612 "log.jsonl:2:1"
changed broken trace.json '$d'
refused broken PD0602 "trace.json"
changed broken trace.json '30s/"ts":/"ts";/'
refused broken PD0602 "trace.json:30:"
changed broken trace.json '30s/"dur":/"dur":-/'
refused broken PD0612 "traceEvents[" "'dur'"
changed broken trace.json '30s/"ts":[0-9.]*/"ts":"soon"/'
refused broken PD0612 "'ts'"
changed broken trace.json 's/"pid":1,/"pid":-1,/'
refused broken PD0612 "'pid'"
changed broken trace.json 's/traceEvents/events/'
refused broken PD0612 "the list 'traceEvents' is missing"
changed broken trace.json '1s/{/[/'
refused broken PD0602 "trace.json:1:"
changed broken plan.json 's/"schedule":/"schedule"/'
refused broken PD0602 "plan.json:"
changed broken plan.json 's/"forward_seconds": /"forward_seconds": -/'
refused broken PD0603 "forward_seconds"
changed broken plan.json 's/"microbatch": 2/"microbatch": 3/'
refused broken PD0603 "microbatches of 3"
changed broken plan.json 's/"model": "[^"]*"/"model": 7/'
refused broken PD0603 "'model'"
rm broken/trace.json
mkdir broken/trace.json
refused broken PD0601 "trace.json"

# Texts of files are texts on the page, whatever they hold; unknown schedules are told of, not predicted.
changed hostile plan.json 's|"why": "|&</script><img src=x onerror=alert(1)><script>alert(2)</script>|
  s|"model": "[^"]*"|"model": "<b>\\"\&amp;\\u003c/title>"|'
sed -i 's|"\(validation_\)*accuracy":|"\1</script><script>alert(3)</script>\\"":|' hostile/log.jsonl
sed -i 's|</svg>|<script>said.push("run")</script><image href="x" onerror="said.push(1)"/></svg>|' hostile/model.svg
"$pdc" report hostile || complain "hostile texts"
page hostile/report.html log trace plan predicted picture hostile
changed other plan.json 's/"schedule": "2bw"/"schedule": "fancy"/'
"$pdc" report other || complain "an unknown schedule"
page other/report.html log trace plan picture
grep -q "knows no schedule" other/report.html || complain "an unknown schedule is not told of"

# Predicted bubbles are those of the papers: equal stages, forward f, backward 2 f, no other time.
#   gpipe, flush (d - 1) / (M + d - 1); interleaved with v chunks (d - 1) / (v M + d - 1); 2bw none;
#   zb_h1 with backward f and weights f: (d - 1) f lost beside 3 f M (Qi et al. 2024, table 1)
predicted() { python3 "$here/check_bubble.py" "$pdc" "$@" || complain "bubble: $*"; }
for d in 2 4; do
  predicted gpipe $d 8 1 $((d - 1))/$((8 + d - 1))
  predicted flush $d 8 1 $((d - 1))/$((8 + d - 1))
  predicted interleaved $d 8 2 $((d - 1))/$((16 + d - 1))
  predicted 2bw $d 8 1 0/1
  predicted zb_h1 $d 8 1 $((d - 1))/$((24 + d - 1))
done
exit $failed
