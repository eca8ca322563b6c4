"""Draws shapes/{train,held}/{circle,square}/*.png for the examples of docs/guide/data.md."""
import os, random, struct, zlib
draw = random.Random(1)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for part, n in (("train", 160), ("held", 40)):
    for kind in ("circle", "square"):
        os.makedirs(f"shapes/{part}/{kind}")
        for i in range(n):
            w, r = draw.randrange(40, 60), draw.randrange(8, 13)
            x0, y0 = draw.randrange(16, w - 16), draw.randrange(16, w - 16)
            ink = [draw.randrange(140, 256) for _ in range(3)]
            inside = (lambda x, y: x * x + y * y <= r * r) if kind == "circle" else (lambda x, y: max(abs(x), abs(y)) <= r * .886)
            rows = b"".join(b"\0" + bytes(v for x in range(w) for v in (ink if inside(x - x0, y - y0) else [draw.randrange(90)] * 3)) for y in range(w))
            with open(f"shapes/{part}/{kind}/{i:03}.png", "wb") as out:
                out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, w, 8, 2, 0, 0, 0)))
                out.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
