"""Writes images/ for images.c: small images, and in expected.txt the pixels and samples that Pillow and torchvision make of
them. Needs Pillow and torchvision; written with 13.0.0 and 0.29.2. Lines of expected.txt, with bytes as hex:

    pixels FILE CHANNELS WIDTH HEIGHT : BYTES             rows of pixels
    central FILE CHANNELS HEIGHT WIDTH RESIZE : BYTES     planes of Resize and CenterCrop; RESIZE 0: the default
    box FILE CHANNELS LEFT TOP W H HEIGHT WIDTH : BYTES   planes of resized_crop
    color KIND FACTOR CHANNELS : FLOATS                   of ramp(CHANNELS), 6 x 5 pixels
    random WIDTH HEIGHT : AREA W H                        means of RandomResizedCrop's boxes, as shares of the image
"""
import os
import struct
import zlib

import numpy as np
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
os.makedirs(here, exist_ok=True)
numbers = np.random.default_rng(1)
lines = []


def drawn(width, height):
    """A smooth image with noise, without equal rows or columns."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 90 * np.sin(x / 5 + y / 9), 128 + 80 * np.cos(y / 4 - x / 11), 40 + x * 3 + y * 2]
    noise = numbers.integers(-20, 21, (height, width, 3))
    return (np.stack(planes, -1) + noise).clip(0, 255).astype(np.uint8)


def save(name, image, **options):
    image.save(os.path.join(here, name), **options)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def save_png(name, pixels, depth, color, interlaced=False):
    """Pixels as [height, width, channels] of 8 or 16 bits, which Pillow does not write so."""
    height, width = pixels.shape[:2]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, right, down in passes if interlaced else [(0, 0, 1, 1)]:
        part = pixels[y::down, x::right].astype(">u2" if depth == 16 else "u1")
        data += b"".join(b"\0" + row.tobytes() for row in part) if part.size else b""
    with open(os.path.join(here, name), "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n")
        out.write(chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, int(interlaced))))
        out.write(chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


# ---- images -----------------------------------------------------------------------------------------
base = Image.fromarray(drawn(11, 7))
save("colour.png", base)
save("grey.png", base.convert("L"))
save("bits.png", base.convert("1"))
save("palette.png", base.quantize(7), transparency=3)
rgba = base.convert("RGBA")
rgba.putalpha(Image.fromarray(drawn(11, 7)[..., 0]))
save("alpha.png", rgba)
save("grey_alpha.png", rgba.convert("LA"))
save_png("interlaced.png", np.asarray(base), 8, 2, True)
deep = numbers.integers(0, 1 << 16, (7, 11, 3))
save_png("colour16.png", deep, 16, 2)
save_png("grey16.png", deep[..., :1], 16, 0)
large = Image.fromarray(drawn(61, 45))
save("large.png", large)
save("tall.png", large.transpose(Image.Transpose.ROTATE_90).crop((0, 0, 40, 61)))
smooth = Image.fromarray(drawn(61, 45)).resize((21, 17), Image.Resampling.BILINEAR)
save("colour.jpg", smooth, quality=90)
save("halved.jpg", smooth, quality=80, subsampling=2)
save("progressive.jpg", smooth, quality=85, progressive=True)
save("grey.jpg", smooth.convert("L"), quality=90)
save("cmyk.jpg", smooth.convert("CMYK"), quality=95)
exif = Image.Exif()
exif[0x0112] = 6  # orientation: a quarter turn
save("turned.jpg", smooth, quality=90, exif=exif)


def opened(name, channels):
    """As torchvision's ImageFolder, and Grayscale for one channel. Pillow saturates 16 bits of grey: high bytes instead."""
    with Image.open(os.path.join(here, name)) as image:
        if image.mode == "I;16":
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        image = image.convert("RGB")
        return image if channels == 3 else image.convert("L")


def planes(image):
    return (T.functional.pil_to_tensor(image).numpy()).astype(np.uint8).tobytes().hex()


for name in sorted(n for n in os.listdir(here) if n.endswith((".png", ".jpg"))):
    for channels in (3, 1):
        image = opened(name, channels)
        if image.width < 20 or (channels == 3 and name.endswith(".jpg")):
            lines.append(f"pixels {name} {channels} {image.width} {image.height} : {image.tobytes().hex()}")
for name, channels, side in [("large.png", 3, 8), ("large.png", 1, 12), ("tall.png", 3, 9), ("colour.png", 3, 24),
                             ("grey16.png", 1, 7), ("colour.jpg", 3, 14), ("palette.png", 1, 11)]:
    whole = T.Compose([T.Resize(int(round(side / 0.875))), T.CenterCrop(side)])
    lines.append(f"central {name} {channels} {side} {side} 0 : {planes(whole(opened(name, channels)))}")
    exact = T.Compose([T.Resize(side + 3), T.CenterCrop(side)])
    lines.append(f"central {name} {channels} {side} {side} {side + 3} : {planes(exact(opened(name, channels)))}")
# An input of 12 x 8: 14 rows, and 9 columns of the same shape; 61 x 45 becomes 18 x 14 as its height decides.
wide = T.Compose([T.Resize((14, 61 * 14 // 45)), T.CenterCrop((12, 8))])
lines.append(f"central large.png 3 12 8 0 : {planes(wide(opened('large.png', 3)))}")
for name, channels, left, top, w, h, side in [("large.png", 3, 7, 5, 31, 30, 10), ("large.png", 1, 0, 20, 61, 25, 8),
                                              ("colour.png", 3, 3, 2, 5, 5, 12), ("grey.jpg", 1, 4, 4, 12, 11, 9)]:
    image = F.resized_crop(opened(name, channels), top, left, h, w, [side, side])
    lines.append(f"box {name} {channels} {left} {top} {w} {h} {side} {side} : {planes(image)}")


# ---- color ------------------------------------------------------------------------------------------
def ramp(channels):
    return ((torch.arange(channels * 30, dtype=torch.float32) * 37) % 101 / 100).reshape(channels, 6, 5)


for channels in (3, 1):
    for kind, change in enumerate((F.adjust_brightness, F.adjust_contrast, F.adjust_saturation)):
        for factor in (0.6, 1.3):
            values = change(ramp(channels), factor).flatten().tolist()
            lines.append(f"color {kind} {factor} {channels} : " + " ".join(f"{x:.8g}" for x in values))

# ---- random boxes -----------------------------------------------------------------------------------
torch.manual_seed(1)
for width, height in ((500, 375), (64, 64), (40, 300)):
    empty, sums, n = torch.empty(3, height, width), np.zeros(3), 20000
    for _ in range(n):
        _, _, h, w = T.RandomResizedCrop.get_params(empty, (0.08, 1.0), (3 / 4, 4 / 3))
        sums += (w * h / width / height, w / width, h / height)
    lines.append(f"random {width} {height} : " + " ".join(f"{x / n:.5f}" for x in sums))

with open(os.path.join(here, "expected.txt"), "w") as out:
    out.write("\n".join(lines) + "\n")
