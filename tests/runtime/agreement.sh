# Ranks with different files fail at start with a message that names rank and file.
. "$(dirname "$0")/common.sh"
mkdir there
cp ./*.npy there
options="--quiet --peak 1e9 --steps 4 --timeout 20"
# Rank 1 starts in a folder of its own, as on another host.
apart() {
  timeout 600 $mpirun -n 1 "$programs/chain_2_0_1" $options "$@" : \
    -n 1 sh -c 'cd there && exec "$0" "$@"' "$programs/chain_2_1_1" $options "$@"
}
data="--data x.npy t.npy"
apart $data --validation vx.npy vt.npy || complain "copies of the same files"

# bytes FILE PATCH: changes a file there; PATCH of Python acts on `data`, the file's bytes.
patch() {
  python3 -c "
data = bytearray(open('$1', 'rb').read())
$2
open('there/$1', 'wb').write(data)"
}
rows() { patch "$1" "data = data.replace(b'($2, 8)', b'($3, 8)')[:128 + 32 * $3]"; }
rows t.npy 37 36 && rows x.npy 37 36
refused "shorter data" "1 (stage 1): 'x.npy' has 1280 bytes on this rank, but 1312 on rank 0" apart $data
cp t.npy x.npy there
patch t.npy "data[-1] ^= 1"
refused "other data" "1 (stage 1): the content of 't.npy' differs from rank 0's" apart $data
cp t.npy there
rows vx.npy 13 12 && rows vt.npy 13 12
refused "shorter validation" "1 (stage 1): 'vx.npy' has 512 bytes on this rank, but 544 on rank 0" apart $data --validation vx.npy vt.npy
cp vx.npy there
patch vt.npy "data[200] ^= 1"
refused "other validation" "1 (stage 1): the content of 'vt.npy' differs from rank 0's" apart $data --validation vx.npy vt.npy
cp vt.npy there

one 1 --steps 0 --save w.safetensors --quiet && cp w.safetensors there || complain "weights"
apart $data --init w.safetensors || complain "copies of the same weights"
patch w.safetensors "data[-1] ^= 1"
refused "other weights" "1 (stage 1): the content of 'w.safetensors' differs from rank 0's" apart $data --init w.safetensors

# Files longer than what is read of them whole: a change in a block that is sampled, and at the end.
large="x=x.npy target=t.npy"
python3 - <<'P' || exit 1
rows = 600000
head = b"\x93NUMPY\x01\x00\x76\x00" + ("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 8), }" % rows).ljust(117).encode() + b"\n"
for folder, last in (("", 1), ("there/", 2)):
    with open(folder + "large.npy", "wb") as out:
        out.write(head)
        out.truncate(128 + 32 * rows - 1)
        out.seek(128 + 32 * rows - 1)
        out.write(bytes([last]))
P
refused "the end of a large file" "1 (stage 1): the content of 'large.npy' differs from rank 0's" apart --data large.npy large.npy

# A folder of checkpoints that is not shared.
refused "a folder of its own" "1 (stage 1): 'state' is not the same directory as on rank 0: it lacks .*, which rank 0 wrote" \
  apart $data --checkpoint state
[ -z "$(find state -type f)" ] || complain "left: $(find state -type f)"
rmdir state && mkdir there/state
refused "a folder of its own, there" "1 (stage 1): 'state' is not the same directory as on rank 0" apart $data --checkpoint state
ln -s "$work/state" there/shared && mkdir shared && rmdir shared && ln -s state shared
apart $data --checkpoint shared || complain "a shared folder under two paths"
[ "$(find state -type f | wc -l)" = 3 ] || complain "not one checkpoint: $(find state -type f)"
exit $failed
