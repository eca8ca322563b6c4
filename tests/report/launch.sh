# The page about several models in one launch: whole, partial, broken and hostile:  launch.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
level=-O0
head -c 2000 "$top/tests/reference/text.txt" >text
tied=$top/tests/bits/tied.pdm
wild=wild
build models --sharp -n 2 "$tied" "$tied" -D width=64 "$tied" -D "optimizer=sgd(lr = 1e30)" -D clip_norm=0 --name wild || exit 1
$mpirun -n 2 models/train --quiet --data text --validation text --validate-every 2 --peak 1e9 --slice 0 --steps 9 \
  --run whole --for tied-width=64 --stop-when 'step >= 6' >said 2>&1
grep -q "model '$wild' failed" said || { cat said >&2; complain "the launch"; }

page() { python3 "$here/check_launch.py" "$@" || complain "the page: $*"; }
# changed NAME FILE PROGRAM: a copy of the whole run whose FILE went through sed
changed() {
  rm -rf "$1"
  cp -r whole "$1"
  sed -i "$3" "$1/$2"
}
# refused NAME CODE TEXT: no page, and a message of this code with this text
refused() {
  "$pdc" report "$1" >said 2>&1 && complain "$1 is not refused"
  for text in "[$2]" "$3"; do
    grep -qF -- "$text" said || complain "$1: '$text' is not in: $(cat said)"
  done
  [ -e "$1/report.html" ] && complain "$1: a page was written"
}

"$pdc" report whole || complain "pdc report"
page whole/report.html plan timeline logs
"$pdc" report whole/tied || complain "the page of one of them"
"$pdc" report models && page models/report.html plan

# Any part may be missing.
rm whole/report.html
for part in plan.json timeline.json; do
  rm -rf less
  cp -r whole less
  rm "less/$part"
  "$pdc" report less || complain "without $part"
  case $part in
  plan.json) page less/report.html timeline logs ;;
  timeline.json) page less/report.html plan logs ;;
  esac
done
rm -rf less
cp -r whole less
rm less/*/log.jsonl
"$pdc" report less || complain "without logs"
page less/report.html plan timeline
changed cut tied/log.jsonl '/"event":"end"/d'
printf '{"step":10,"lo' >>cut/tied/log.jsonl
"$pdc" report cut && page cut/report.html plan timeline logs cut

# What a launch does not write.
changed broken timeline.json '$d'
refused broken PD0602 "timeline.json"
changed broken timeline.json 's/"otherData"/"other"/'
refused broken PD0612 "the object 'otherData' is missing"
changed broken timeline.json 's/"traceEvents"/"events"/'
refused broken PD0603 "traceEvents"
changed broken timeline.json 's/"ranks":2/"ranks":1/'
refused broken PD0612 "no 'tid' of a rank"
changed broken timeline.json 's/"dur":/"dur":-/'
refused broken PD0612 "'dur'"
changed broken timeline.json 's/"ph":"X","name":"tied"/"ph":"X","name":"tide"/'
refused broken PD0612 "no 'name' of a model"
changed broken plan.json 's/"name": "tied"/"name": "..\/whole\/tied"/'
refused broken PD0612 "the name cannot be the name of a folder"
changed broken plan.json 's/"sharp"/"flat"/'
refused broken PD0612 "the object 'sharp' is missing"
changed broken tied/log.jsonl '2s/.*/[1, 2]/'
refused broken PD0612 "tied/log.jsonl:2:1"

# Names are texts on the page, whatever they hold.
name='<b>x<img src=x onerror=alert(1)><script>alert(2)'
changed hostile timeline.json "s|\"name\":\"tied\"|\"name\":\"$name\"|"
sed -i "s|\"name\": \"tied\"|\"name\": \"$name\"|" hostile/plan.json
mv hostile/tied "hostile/$name"
"$pdc" report hostile && page hostile/report.html plan timeline logs
exit $failed
