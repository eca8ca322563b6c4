"""Prints a line for each field and each tensor of a GGUF file of version 3, sorted:  gguf_lines.py FILE
A tensor's line has its type, sizes and the checksum of its bytes, or the numbers of rope_freqs.weight in five digits. Reads the format by itself, with its rules of places."""
import struct
import sys
import zlib

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, ARRAY = 8, 9
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 8: ("Q8_0", 32, 34)}  # elements and bytes of a block


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = file.read()
        self.at = 0

    def take(self, form):
        (x,) = struct.unpack_from("<" + form, self.bytes, self.at)
        self.at += struct.calcsize("<" + form)
        return x

    def text(self):
        n = self.take("Q")
        self.at += n
        return self.bytes[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == TEXT:
            return self.text()
        if kind == ARRAY:
            of, n = self.take("I"), self.take("Q")
            return [self.value(of) for _ in range(n)]
        return self.take(NUMBERS[kind])


def read(path):
    """Fields by name as (kind, value), and tensors by name as (type, sizes, bytes)."""
    r = Reader(path)
    assert r.bytes[:4] == b"GGUF"
    r.at = 4
    version, n_tensors, n_fields = r.take("I"), r.take("Q"), r.take("Q")
    assert version == 3
    fields, found, tensors, end = {}, [], {}, 0
    for _ in range(n_fields):
        name, kind = r.text(), r.take("I")
        assert name not in fields
        fields[name] = (kind, r.value(kind))
    for _ in range(n_tensors):
        name = r.text()
        sizes = [r.take("Q") for _ in range(r.take("I"))]
        found.append((name, sizes, r.take("I"), r.take("Q")))
    start = (r.at + 31) // 32 * 32
    for name, sizes, kind, offset in found:
        title, elements, size = TYPES[kind]
        n = size
        for s in sizes:
            n *= s
        assert name not in tensors and offset == end and sizes[0] % elements == 0, name
        n //= elements
        tensors[name] = (title, sizes, r.bytes[start + offset:start + offset + n])
        end = (offset + n + 31) // 32 * 32
        assert len(tensors[name][2]) == n, name
    assert start + end == len(r.bytes)
    return fields, tensors


def lines(path):
    fields, tensors = read(path)
    out = [f"field {name} {kind} {value!r}" for name, (kind, value) in fields.items()]
    for name, (kind, sizes, data) in tensors.items():
        what = f"{zlib.crc32(data):08x}"
        if name == "rope_freqs.weight":
            what = " ".join(f"{x:.5g}" for x in struct.unpack(f"<{len(data) // 4}f", data))
        out.append(f"tensor {name} {kind} {sizes} {what}")
    return sorted(out)


if __name__ == "__main__":
    print("\n".join(lines(sys.argv[1])))
