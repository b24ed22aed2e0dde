"""Makes corpus.zip: small JPEG files of every kind that package jpeg decodes, with
Pillow 13 (tools/peers) and libjpeg-turbo's cjpeg, and in "sums" a line for each: its
name, and the width, height and SHA-256 of
ImageOps.exif_transpose(Image.open(name)).convert("RGB"). Run it in this folder.
"""
import hashlib, io, subprocess, tempfile, warnings, zipfile
import numpy as np
from PIL import Image, ImageOps

warnings.simplefilter("ignore")
corpus = zipfile.ZipFile("corpus.zip", "w")
sums = []


def picture(w, h):
    rng = np.random.default_rng(w * 1000 + h)
    y, x, c = np.ogrid[0:h, 0:w, 0:3]
    v = 128 + 100 * ((x * (c + 2) // 9 + y * (4 - c) // 7) % 3 - 1)
    return Image.fromarray(np.clip(v + rng.integers(-20, 21, (h, w, 3)), 0, 255).astype(np.uint8))


def put(name, data):
    info = zipfile.ZipInfo(name)  # with a fixed date
    info.compress_type = zipfile.ZIP_DEFLATED
    corpus.writestr(info, data)
    if name != "sums":
        with Image.open(io.BytesIO(data)) as i:
            i = ImageOps.exif_transpose(i).convert("RGB")
        sums.append("%s %d %d %s\n" % (name, *i.size, hashlib.sha256(i.tobytes()).hexdigest()))


def cjpeg(im, *args):
    ppm = io.BytesIO()
    im.save(ppm, "PPM")
    data = subprocess.run(["cjpeg", *args], input=ppm.getvalue(), stdout=subprocess.PIPE, check=True).stdout
    name = "%dx%d%s" % (*im.size, "".join(args).replace(",", "_").replace("/", ""))
    put(name + ".jpg", data)


def pillow(name, im, **options):
    b = io.BytesIO()
    im.save(b, "JPEG", **options)
    put(name + ".jpg", b.getvalue())


def scans(im, name, script):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write(script)
        f.flush()
        ppm = io.BytesIO()
        im.save(ppm, "PPM")
        put(name + ".jpg", subprocess.run(["cjpeg", "-scans", f.name], input=ppm.getvalue(), stdout=subprocess.PIPE, check=True).stdout)


im = picture(70, 41)
for sampling in ["1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "3x1", "1x3", "1x1,2x2,1x1", "2x2,1x2,2x1", "2x2,2x1,1x1", "2x1,1x1,2x1", "4x1,2x1,1x1"]:
    for more in [[], ["-progressive"], ["-restart", "1"], ["-restart", "3B", "-optimize"]]:
        cjpeg(im, "-sample", sampling, *more)
for size in range(1, 18):
    cjpeg(picture(size, 18 - size))
    cjpeg(picture(size, size), "-sample", "2x1")
for size in [(1, 1), (2, 2), (3, 5), (8, 8), (16, 16), (17, 17), (200, 3), (3, 200)]:
    cjpeg(picture(*size), "-progressive")
    cjpeg(picture(*size), "-sample", "1x1", "-quality", "100")
    cjpeg(picture(*size).convert("L"), "-restart", "1")
for sampling in ["1x1", "2x2", "4x4", "2x4"]:
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("0; 1; 2;")
        f.flush()
        ppm = io.BytesIO()
        im.save(ppm, "PPM")
        args = ["cjpeg", "-sample", sampling, "-scans", f.name]
        put("planes" + sampling + ".jpg", subprocess.run(args, input=ppm.getvalue(), stdout=subprocess.PIPE, check=True).stdout)
scans(im, "luma-chroma", "0; 1,2;")
scans(im, "spectral", "0,1,2: 0-0, 0, 0; 0: 1-5, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0; 0: 6-63, 0, 0;")
scans(im, "unfinished", "0,1,2: 0-0, 0, 1; 0: 1-5, 0, 2; 1: 1-63, 0, 2;")
scans(im, "dc-only", "0,1,2: 0-0, 0, 0;")
cjpeg(im, "-rgb", "-quality", "90")
cjpeg(im, "-quality", "1")
cjpeg(im, "-quality", "2", "-progressive")
cjpeg(picture(120, 90), "-quality", "98")
cjpeg(picture(120, 90), "-quality", "98", "-progressive")
for orientation in range(1, 9):
    e = Image.Exif()
    e[0x112] = orientation
    pillow("exif%d" % orientation, picture(37, 22), exif=e, quality=90)
cmyk = Image.merge("CMYK", [*im.split(), im.convert("L")])
pillow("cmyk", cmyk, quality=90)
pillow("cmyk-progressive", cmyk, quality=90, progressive=True)
pillow("icc", im, icc_profile=bytes(range(256)) * 300)
# YCCK: the CMYK file, whose Adobe segment says that it is.
b = io.BytesIO()
cmyk.save(b, "JPEG", quality=95)
data = b.getvalue()
at = data.index(b"Adobe")
put("ycck.jpg", data[:at + 11] + b"\x02" + data[at + 12:])
# CMYK without an Adobe segment.
put("cmyk-plain.jpg", data[:at - 4] + data[at + 12:])
put("sums", "".join(sums))
corpus.close()
