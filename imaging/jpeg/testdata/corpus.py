"""Makes corpus.zip and more.zip: small JPEG files of every kind that package jpeg decodes, with
Pillow 13 (tools/peers) and libjpeg-turbo's cjpeg, and in "sums" a line for each: its
name, and the width, height and SHA-256 of
ImageOps.exif_transpose(Image.open(name)).convert("RGB"); of files of 12 bits, which
Pillow does not read, of the upper 8 bits of each sample that djpeg shows, and the same
behind it for the scales 1/2, 1/4 and 1/8. Run it in this
folder, with a folder that has cjpeg and djpeg of libjpeg-turbo 3 for these as its
argument.
"""
import hashlib, io, os, subprocess, sys, tempfile, warnings, zipfile
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


def put(name, data, seen=None):
    info = zipfile.ZipInfo(name)  # with a fixed date
    info.compress_type = zipfile.ZIP_DEFLATED
    corpus.writestr(info, data)
    if seen:
        sums.append("%s %s\n" % (name, seen))
    elif name != "sums":
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


def planes(sampling):
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("0; 1; 2;")
        f.flush()
        ppm = io.BytesIO()
        im.save(ppm, "PPM")
        args = ["cjpeg", "-sample", sampling, "-scans", f.name]
        put("planes" + sampling + ".jpg", subprocess.run(args, input=ppm.getvalue(), stdout=subprocess.PIPE, check=True).stdout)


for sampling in ["1x1", "2x2", "4x4", "2x4"]:
    planes(sampling)
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

# More samplings, and files of 12 bits.
corpus = zipfile.ZipFile("more.zip", "w")
sums = []
for sampling in ["4x2", "2x4", "3x2", "2x3"]:
    for more in [[], ["-progressive"]]:
        cjpeg(im, "-sample", sampling, *more)
for sampling in ["3x3", "3x4", "4x3"]:
    planes(sampling)


def deep(im, *args, script=""):
    """Puts a file of 12 bits."""
    v = np.asarray(im).astype(np.uint16) << 4
    v |= np.random.default_rng(12).integers(0, 16, v.shape).astype(np.uint16)
    grey = v.ndim == 2
    ppm = b"P%d\n%d %d\n4095\n" % (5 if grey else 6, *im.size) + v.astype(">u2").tobytes()
    name = "12bits-%dx%d%s%s" % (*im.size, "-grey" if grey else "", "".join(args).replace(",", "_"))
    with tempfile.NamedTemporaryFile("w") as f:
        if script:
            f.write(script)
            f.flush()
            name += "-%d-scans" % script.count(";")
            args = [*args, "-scans", f.name]
        data = subprocess.run([os.path.join(sys.argv[1], "cjpeg"), "-precision", "12", *args], input=ppm, stdout=subprocess.PIPE, check=True).stdout
    seen = []
    for scale in 1, 2, 4, 8:
        ppm = subprocess.run([os.path.join(sys.argv[1], "djpeg"), "-scale", "1/%d" % scale, "-ppm"], input=data, stdout=subprocess.PIPE, check=True).stdout
        magic, size, most, pix = ppm.split(b"\n", 3)
        assert most == b"4095"
        pix = (np.frombuffer(pix, ">u2") >> 4).astype(np.uint8)
        if magic == b"P5":
            pix = np.repeat(pix, 3)
        seen.append(size.decode() + " " + hashlib.sha256(pix.tobytes()).hexdigest())
    put(name + ".jpg", data, " ".join(seen))


for sampling in ["1x1", "2x1", "1x2", "2x2", "4x1", "1x4", "3x1", "2x2,1x2,2x1", "2x1,1x1,2x1"]:
    for more in [[], ["-progressive"], ["-restart", "1"]]:
        deep(im, "-sample", sampling, *more)
for size in [(1, 1), (2, 2), (3, 5), (8, 8), (17, 17), (200, 3), (3, 200)]:
    deep(picture(*size))
    deep(picture(*size).convert("L"), "-restart", "1")
deep(im, "-sample", "4x4", script="0; 1; 2;")
deep(im, script="0,1,2: 0-0, 0, 0; 0: 1-5, 0, 0; 1: 1-63, 0, 0; 2: 1-63, 0, 0; 0: 6-63, 0, 0;")
deep(im, script="0,1,2: 0-0, 0, 1; 0: 1-5, 0, 2; 1: 1-63, 0, 2;")
deep(im, "-rgb", "-quality", "90")
deep(im, "-quality", "1")
deep(im, "-quality", "100", "-progressive")
deep(picture(120, 90), "-quality", "98")
put("sums", "".join(sums))
corpus.close()
