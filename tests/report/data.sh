# Pages about data have the facts of the text, the bytes of the images, and load nothing:  data.sh PDC
pdc=$1
. "$(dirname "$0")/../launch.sh"
python3 "$top/tests/docs/draw_shapes.py" || exit 1
printf '{"messages": [{"role": "user", "content": "2 < 3 & \\u0001 \\"?"}, {"role": "assistant", "content": "yes </mark>\\nline"}]}\n' >chats.jsonl
printf '{"prompt": "a", "completion": "b"}\n' >>chats.jsonl
"$pdc" tokenize --length 128 --end 10 --chat-template chatml -o chats.npz --quiet chats.jsonl || exit 1
python3 - <<'P' || exit 1
import glob, io, tarfile, zipfile
paths = sorted(glob.glob("shapes/held/*/*.png"))
with zipfile.ZipFile("shapes.zip", "w", zipfile.ZIP_DEFLATED) as z, tarfile.open("shapes.tar", "w") as t:
    for i, path in enumerate(paths):
        z.write(path)
        t.add(path, "%03d.png" % i)
        label = tarfile.TarInfo("%03d.cls" % i)
        label.size = 2
        t.addfile(label, io.BytesIO(b"%2d" % (i % 11)))
P
for data in chats.npz shapes/held shapes.zip shapes.tar; do
  "$pdc" data --show "$data" --html page.html >text && python3 "$here/check_data.py" "$data" text page.html ||
    complain "the page about $data"
done
cp shapes/held/circle/000.png cut.png
head -c 20 cut.png >shapes/held/circle/000.png
"$pdc" data --show shapes/held | grep -q '^circle/000.png: damaged$' || complain "a damaged image"
"$pdc" data --show shapes/held --html no/page.html 2>said && complain "a page in no folder"
grep -q "PD0605" said || complain "no reason for a page that cannot be written: $(cat said)"
mkdir empty && "$pdc" data --show empty 2>said && complain "an empty folder is shown"
grep -q "'empty' has no images" said || complain "an empty folder: $(cat said)"
python3 - <<'P' || exit 1
import zipfile
data = bytearray(open("shapes.zip", "rb").read())
member = zipfile.ZipFile("shapes.zip").infolist()[0]
start = member.header_offset + 30 + len(member.filename)
data[start:start + member.compress_size] = bytes(member.compress_size)
open("hurt.zip", "wb").write(data)
P
"$pdc" data --show hurt.zip --html hurt.html >text || complain "a zip file with a damaged member"
grep -q '^shapes/held/circle/000.png: damaged$' text || complain "a damaged member: $(cat text)"
[ "$(grep -o '<figure>' hurt.html | wc -l)" = 24 ] || complain "images beside a damaged member"

# Names are plain text: valid UTF-8 without control characters.
first=$(printf 'a\377') second=$(printf 'b\342\200\256')
mkdir -p "odd/$first" "odd/$second" && cp cut.png "odd/$first" && cp cut.png "odd/$second"
"$pdc" data --show odd --html odd.html >text || complain "a folder with odd names"
python3 - <<'P' || complain "control characters or invalid UTF-8 in a name"
text, page = open("text", encoding="utf-8").read(), open("odd.html", encoding="utf-8").read()
assert "a?: 1" in text and "b?: 1" in text and "\u202e" not in text + page and "b&#xFFFD;" in page, text
P

# No output replaces an input.
keeps() {
  file=$1 why=$2
  shift 2
  cp "$file" before
  "$pdc" "$@" >text 2>said && complain "pdc $*: replaces its input"
  grep -q "$why.*PD0605" said || complain "pdc $*: $(cat said)"
  cmp -s before "$file" || complain "pdc $*: its input is lost"
}
cp shapes.zip over.zip && ln over.zip over.html
cp "$top/models/mlp.pdm" over.pdm
cp -r "$top/tests/import/folders/llama" folder
keeps over.zip "it is the input" data --show over.zip --html over.zip
keeps over.zip "it is the input" data --show over.zip --html over.html
keeps shapes/held/circle/001.png "it is a file of the input" data --show shapes/held --html shapes/held/circle/001.png
keeps over.pdm "it is the input" plan --report -o over.pdm over.pdm
keeps over.pdm "it is the input" show --svg over.pdm over.pdm
keeps over.pdm "it is the input" profile -S -o over.pdm over.pdm
keeps folder/config.json "it is a file of the input" import -o folder/config.json folder
keeps folder/model.safetensors "it is a file of the exported folder" export --gguf -o folder/model.safetensors folder
for again in 1 2; do
  "$pdc" import -o folder/model.pdm folder && "$pdc" data --show shapes/held --html shapes/held/page.html >text ||
    complain "an output in the input's folder, time $again"
done

head -c 3000 shapes.zip >cut.zip
"$pdc" data --show cut.zip 2>said && complain "a damaged zip file is shown"
grep -q "PD0661" said || complain "a damaged zip file: $(cat said)"
exit $failed
