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
head -c 3000 shapes.zip >cut.zip
"$pdc" data --show cut.zip 2>said && complain "a damaged zip file is shown"
grep -q "PD0661" said || complain "a damaged zip file: $(cat said)"
exit $failed
