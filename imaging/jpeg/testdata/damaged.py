"""Makes damaged.zip: files of corpus.zip, cut and spoilt, and in "sums" a line for each:
its name, and the width, height and SHA-256 of what Pillow 13 (tools/peers) shows of it,
by default and with LOAD_TRUNCATED_IMAGES; "error" where that is an error. Run it in this
folder.
"""
import hashlib, io, random, warnings, zipfile
from PIL import Image, ImageFile

warnings.simplefilter("ignore")
rng = random.Random(3)
source, corpus = zipfile.ZipFile("corpus.zip"), zipfile.ZipFile("damaged.zip", "w")
sums = []


def seen(data, truncated):
    ImageFile.LOAD_TRUNCATED_IMAGES = truncated
    try:
        with Image.open(io.BytesIO(data)) as i:
            i.load()
            low_high = i.getextrema() if len(i.getbands()) > 1 else [i.getextrema()]
            i = i.convert("RGB")
    except Exception:
        return "error"
    if not any(high for _, high in low_high):
        return "error"  # libjpeg gives up, and Pillow is not to complain
    return "%d %d %s" % (*i.size, hashlib.sha256(i.tobytes()).hexdigest())


def put(name, data):
    info = zipfile.ZipInfo(name)  # with a fixed date
    info.compress_type = zipfile.ZIP_DEFLATED
    corpus.writestr(info, data)


def damaged(data):
    scan = data.index(b"\xff\xda")
    at = lambda: rng.randrange(scan + 14, len(data) - 2)
    yield "cut", data[: at()]
    yield "no-end", data[:-2]
    flipped = bytearray(data)
    flipped[at()] ^= 1 << rng.randrange(8)
    yield "bit", bytes(flipped)
    hole = at()
    yield "hole", data[:hole] + data[hole + 17 :]
    noise = bytearray(data)
    for _ in range(6):
        noise[at()] = rng.randrange(256)
    yield "noise", bytes(noise)
    marker = at()
    yield "marker", data[:marker] + bytes([0xFF, 0xD0 + rng.randrange(10)]) + data[marker:]
    yield "behind", data[:-2] + b"\x12\x34\xff\xd9"


for name in [
    "70x41-sample2x2.jpg", "70x41-sample2x2-progressive.jpg", "70x41-sample2x2-restart1.jpg", "70x41-sample1x2.jpg",
    "70x41-sample2x1-restart3B-optimize.jpg", "3x200-restart1.jpg", "planes2x2.jpg", "spectral.jpg", "cmyk.jpg", "70x41-quality2-progressive.jpg",
]:
    for kind, data in damaged(source.read(name)):
        if b"\xff\xff\x00" in data:
            continue  # which is known to differ
        put(kind + "-" + name, data)
        sums.append("%s|%s|%s\n" % (kind + "-" + name, seen(data, False), seen(data, True)))
put("sums", "".join(sums).encode())
corpus.close()
