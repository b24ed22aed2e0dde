"""Makes corpus.zip: small files of every kind that package imaging reads, with
Pillow 13 (tools/peers), and beside each NAME its pixels as NAME.rgb: u32 width, u32
height, and the bytes of Image.open(NAME).convert("RGB"). Run it in this folder.
"""
import io, struct, warnings, zipfile, zlib
import numpy as np
from PIL import Image

warnings.simplefilter("ignore")
corpus = zipfile.ZipFile("corpus.zip", "w")
rng = np.random.default_rng(1)
W, H = 19, 13
yy, xx = np.mgrid[0:H, 0:W]
smooth = np.stack([xx * 13, yy * 19, 255 - xx * 7 - yy * 5], -1).astype(np.uint8)
rgb = np.clip(smooth.astype(int) + rng.integers(-9, 10, smooth.shape), 0, 255).astype(np.uint8)
alpha = rng.integers(0, 256, (H, W), dtype=np.uint8)
grey = rgb[..., 1]
im = Image.fromarray(rgb)
im_l = Image.fromarray(grey)
im_rgba = Image.fromarray(np.dstack([rgb, alpha]))
im_la = Image.merge("LA", [im_l, Image.fromarray(alpha)])
im_p = im.quantize(16)
im_1 = im_l.convert("1")
im_cmyk = Image.merge("CMYK", [*im.split(), Image.fromarray(255 - grey)])
im_16 = Image.fromarray((grey.astype(np.uint16) << 8) | rng.integers(0, 256, (H, W)).astype(np.uint16))


def exif(orientation):
    e = Image.Exif()
    e[0x112] = orientation
    return e


def put(name, data):
    with Image.open(io.BytesIO(data)) as i:
        pixels = i.convert("RGB")
    file(name, data)
    file(name + ".rgb", struct.pack("<II", *pixels.size) + pixels.tobytes())


def file(name, data):
    info = zipfile.ZipInfo(name)  # with a fixed date
    info.compress_type = zipfile.ZIP_DEFLATED
    corpus.writestr(info, data)


def rand(*shape):
    return rng.integers(0, 256, shape, dtype=np.uint8).tobytes()


def encode(image, **kw):
    b = io.BytesIO()
    image.save(b, **kw)
    return b.getvalue()


def save(name, image, **kw):
    b = encode(image, **kw)
    put(name, b)
    return b


def jpeg(name, image, **kw):
    return save(name + ".jpg", image, format="JPEG", **kw)


for s, n in ((0, "444"), (1, "422"), (2, "420")):
    jpeg(n, im, quality=90, subsampling=s)
    jpeg(n + "-progressive", im, quality=90, subsampling=s, progressive=True)
jpeg("restart", im, quality=90, restart_marker_blocks=1)
jpeg("optimized", im, quality=70, optimize=True)
jpeg("grey", im_l, quality=90)
jpeg("grey-progressive", im_l, quality=90, progressive=True)
jpeg("cmyk", im_cmyk, quality=95)
jpeg("rgb", im, quality=90, keep_rgb=True)
jpeg("one-pixel", im.crop((0, 0, 1, 1)))
for o in range(1, 9):
    jpeg(f"orient-{o}", im, quality=90, exif=exif(o))
b = jpeg("comment", im, quality=90, comment=b"an end marker inside: \xff\xd9")
put("junk-after-end.jpg", b + b"\0\0junk\xff\xd9junk")
# The thumbnail inside the EXIF segment has its own end marker.
t = encode(im.resize((8, 6)), format="JPEG", quality=30)
ifd = struct.pack(">2sHI", b"MM", 42, 8)
ifd += struct.pack(">H HHIHH I", 1, 0x112, 3, 1, 6, 0, 8 + 2 + 12 + 4)
ifd += struct.pack(">H HHII HHII I", 2, 0x201, 4, 1, 8 + 2 + 12 + 4 + 2 + 24 + 4, 0x202, 4, 1, len(t), 0)
jpeg("exif-thumbnail", im, quality=90, exif=b"Exif\0\0" + ifd + t)


# YCCK: the same components, under Adobe's transform 2.
b = encode(im_cmyk, format="JPEG", quality=95)
i = b.index(b"Adobe")
put("ycck.jpg", b[: i + 11] + b"\x02" + b[i + 12 :])
# CMYK without Adobe's marker.
put("cmyk-no-adobe.jpg", b[: i - 4] + b[i + 12 :])


def png(name, image, **kw):
    return save(name + ".png", image, format="PNG", **kw)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(name, width, height, depth, colour, rows, extra=b"", interlace=0):
    """rows: the filtered rows as bytes."""
    put(name + ".png", b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace))
        + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def noise(bits_a_row, height=H):
    n = (bits_a_row + 7) // 8
    return b"".join(b"\0" + rng.integers(0, 256, n, dtype=np.uint8).tobytes() for _ in range(height))


def adam7(width, height, bits):
    b = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        w, h = -(-(width - x0) // dx), -(-(height - y0) // dy)
        if w > 0 and h > 0:
            b += noise(w * bits, h)
    return b


png("rgb", im)
png("rgba", im_rgba)
png("grey", im_l)
png("grey-alpha", im_la)
png("palette", im_p)
png("bilevel", im_1)
png("grey16", im_16)
png("orient-6", im, exif=exif(6))
plte = chunk(b"PLTE", rng.integers(0, 256, 48, dtype=np.uint8).tobytes())
plte2 = chunk(b"PLTE", rng.integers(0, 256, 6, dtype=np.uint8).tobytes())
plte3 = chunk(b"PLTE", rng.integers(0, 256, 9, dtype=np.uint8).tobytes())  # index 3 is missing
trns = chunk(b"tRNS", bytes([0, 128, 255]))
for depth in (1, 2, 4, 8, 16):
    raw_png(f"grey{depth}-noise", W, H, depth, 0, noise(W * depth))
    raw_png(f"grey{depth}-interlaced", W, H, depth, 0, adam7(W, H, depth), interlace=1)
raw_png("grey1-trns", W, H, 1, 0, noise(W), chunk(b"tRNS", b"\0\0"))
raw_png("grey8-trns", W, H, 8, 0, noise(W * 8), chunk(b"tRNS", b"\0\7"))
raw_png("grey16-trns", W, H, 16, 0, noise(W * 16), chunk(b"tRNS", b"\0\7"))
raw_png("rgb8-trns", W, H, 8, 2, noise(W * 24), chunk(b"tRNS", b"\0\7\0\7\0\7"))
for depth in (8, 16):
    raw_png(f"rgb{depth}-noise", W, H, depth, 2, noise(W * 3 * depth))
    raw_png(f"rgb{depth}-interlaced", W, H, depth, 2, adam7(W, H, depth * 3), interlace=1)
    raw_png(f"rgba{depth}-noise", W, H, depth, 6, noise(W * 4 * depth))
    raw_png(f"rgba{depth}-interlaced", W, H, depth, 6, adam7(W, H, depth * 4), interlace=1)
    raw_png(f"grey-alpha{depth}-noise", W, H, depth, 4, noise(W * 2 * depth))
raw_png("palette4-trns", W, H, 4, 3, noise(W * 4), plte + trns)
raw_png("palette4-interlaced", W, H, 4, 3, adam7(W, H, 4), plte, interlace=1)
raw_png("palette1", W, H, 1, 3, noise(W), plte2)
raw_png("palette2", W, H, 2, 3, noise(W * 2), plte3)
raw_png("palette8", W, H, 8, 3, noise(W * 8), chunk(b"PLTE", rand(768)))


def gif(name, image, **kw):
    return save(name + ".gif", image, format="GIF", **kw)


gif("palette", im_p)
gif("interlaced", im_p, interlace=True)
gif("transparent", im_p, transparency=3)
gif("animated", im_p, save_all=True, append_images=[im_p.rotate(180), im_p.rotate(90)], duration=50)
gif("grey", im_l)
gif("two", im_1)


def lzw(pixels, bits):
    """Literal codes only, with a clear code often enough to keep their width."""
    clear, acc, n, outb = 1 << bits, 0, 0, bytearray()

    def code(c):
        nonlocal acc, n
        acc |= c << n
        n += bits + 1
        while n >= 8:
            outb.append(acc & 255)
            acc >>= 8
            n -= 8

    for k, p in enumerate(pixels):
        if k % (clear - 2) == 0:
            code(clear)
        code(int(p))
    code(clear + 1)
    if n:
        outb.append(acc & 255)
    blocks = b"".join(bytes([len(outb[i : i + 200])]) + bytes(outb[i : i + 200]) for i in range(0, len(outb), 200))
    return bytes([bits]) + blocks + b"\0"


def raw_gif(name, canvas, frames, background=0, colours=16):
    """frames: (x, y, w, h, transparent index or None, local palette)."""
    d = b"GIF89a" + struct.pack("<HHBBB", *canvas, (0xb0 | colours.bit_length() - 2) if colours else 0x30, background, 0) + rand(3 * colours)
    for x, y, w, h, trans, local in frames:
        if trans is not None:
            d += b"\x21\xf9\x04" + struct.pack("<BHB", 1, 0, trans) + b"\0"
        d += b"\x2c" + struct.pack("<HHHHB", x, y, w, h, 0x83 if local else 0)
        d += rand(48) if local else b""
        d += lzw(rng.integers(0, 16, w * h), 4)
    put(name + ".gif", d + b"\x3b")


raw_gif("inset", (W, H), [(3, 2, 9, 7, None, False)], background=5)
raw_gif("inset-transparent", (W, H), [(3, 2, 9, 7, 4, False)], background=5)
raw_gif("inset-local", (W, H), [(3, 2, 9, 7, None, True)], background=2)
raw_gif("local-only", (W, H), [(0, 0, W, H, None, True)], colours=0)
raw_gif("short-palette", (W, H), [(0, 0, W, H, None, False)], colours=4)
raw_gif("no-palette", (W, H), [(0, 0, W, H, None, False)], colours=0)
raw_gif("juts-out", (W, H), [(5, 4, W, H, None, False)])
raw_gif("local-animated", (W, H), [(0, 0, W, H, 2, True), (1, 1, 4, 4, None, True)])


def webp(name, image, **kw):
    return save(name + ".webp", image, format="WEBP", **kw)


webp("lossless", im, lossless=True)
webp("lossless-alpha", im_rgba, lossless=True, exact=True)
webp("lossless-orient-8", im, lossless=True, exif=exif(8))
webp("lossy", im, quality=90)
webp("lossy-alpha", im_rgba, quality=90)
webp("lossy-orient-6", im, quality=90, exif=exif(6))


def riff(kind, data):
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def inset_webp(name, x, y, **kw):
    """An animation whose first frame is smaller than its canvas."""
    small = im.crop((0, 0, 8, 6)) if kw["lossless"] else im.crop((0, 0, 7, 5))
    frame = encode(small, format="WEBP", **kw)[12:]
    u24 = lambda v: struct.pack("<I", v)[:3]
    anmf = u24(x // 2) + u24(y // 2) + u24(small.width - 1) + u24(small.height - 1) + u24(100) + b"\0" + frame
    body = b"WEBP" + riff(b"VP8X", b"\x02\0\0\0" + u24(W - 1) + u24(H - 1)) + riff(b"ANIM", b"\xff\x80\x40\xff\0\0") + riff(b"ANMF", anmf)
    put(name + ".webp", riff(b"RIFF", body))


inset_webp("animated-inset", 4, 2, lossless=True)
inset_webp("animated-inset-lossy", 10, 6, lossless=False, quality=90)
webp("animated", im, save_all=True, append_images=[im.rotate(180)], lossless=True)


def bmp(name, image, **kw):
    return save(name + ".bmp", image, format="BMP", **kw)


bmp("rgb", im)
bmp("grey", im_l)
bmp("palette", im_p)
bmp("bilevel", im_1)


def raw_bmp(name, w, h, bits, rows, header=40, compression=0, palette=b"", masks=b"", pal=0):
    if header == 12:
        dib = struct.pack("<IHHHH", 12, w, h, 1, bits)
    else:
        dib = struct.pack("<IiiHHIIiiII", header, w, h, 1, bits, compression, len(rows), 2835, 2835, pal, 0)
        dib += masks
        if header > len(dib):
            dib += b"\0" * (header - len(dib))
    off = 14 + len(dib) + len(palette)
    put(name + ".bmp", b"BM" + struct.pack("<IHHI", off + len(rows), 0, 0, off) + dib + palette + rows)


def bmp_rows(bits):
    return b"".join(rng.integers(0, 256, (W * bits + 31) // 32 * 4, dtype=np.uint8).tobytes() for _ in range(H))


def bmp_pal(n, each=4):
    p = rng.integers(0, 256, (n, each), dtype=np.uint8)
    if each == 4:
        p[:, 3] = 0
    return p.tobytes()


raw_bmp("top-down", W, -H, 24, bmp_rows(24))
raw_bmp("core", W, H, 24, bmp_rows(24), header=12)
raw_bmp("core8", W, H, 8, bmp_rows(8), header=12, palette=bmp_pal(256, 3))
raw_bmp("palette1", W, H, 1, bmp_rows(1), palette=bmp_pal(2), pal=2)
raw_bmp("palette4", W, H, 4, bmp_rows(4), palette=bmp_pal(16), pal=16)
raw_bmp("palette8", W, H, 8, bmp_rows(8), palette=bmp_pal(256))
raw_bmp("555", W, H, 16, bmp_rows(16))
m565 = struct.pack("<III", 0xf800, 0x7e0, 0x1f)
raw_bmp("565", W, H, 16, bmp_rows(16), compression=3, masks=m565)
raw_bmp("565-v4", W, H, 16, bmp_rows(16), header=108, compression=3, masks=m565 + b"\0\0\0\0")
raw_bmp("32", W, H, 32, bmp_rows(32))
raw_bmp("32-masks", W, H, 32, bmp_rows(32), compression=3, masks=struct.pack("<III", 0xff0000, 0xff00, 0xff))
raw_bmp("32-rgbx-v5", W, H, 32, bmp_rows(32), header=124, compression=3, masks=struct.pack("<IIII", 0xff, 0xff00, 0xff0000, 0xff000000))
rle8 = b""
for y in range(H):
    v = rng.integers(0, 256, W, dtype=np.uint8)
    if y % 3 == 0:
        rle8 += bytes([10, v[0], 9, v[1]])
    elif y % 3 == 1:
        rle8 += bytes([0, W]) + v.tobytes() + b"\0"
    else:
        rle8 += bytes([5, v[0], 0, 2, 4, 0, 3, v[1]])
    rle8 += b"\0\0"
raw_bmp("rle8", W, H, 8, rle8[:-2] + b"\0\1", compression=1, palette=bmp_pal(256))
rle4 = b""
for y in range(H):
    v = rng.integers(0, 256, 10, dtype=np.uint8)
    if y % 2:
        rle4 += bytes([11, v[0], 8, v[1]])
    else:
        rle4 += bytes([0, W]) + v.tobytes()
    rle4 += b"\0\0"
raw_bmp("rle4", W, H, 4, rle4[:-2] + b"\0\1", compression=2, palette=bmp_pal(16), pal=16)


def tiff(name, image, **kw):
    return save(name + ".tif", image, format="TIFF", **kw)


tiff("rgb", im)
tiff("rgba", im_rgba)
tiff("grey", im_l)
tiff("grey-alpha", im_la)
tiff("palette", im_p)
tiff("bilevel", im_1)
tiff("cmyk", im_cmyk)
tiff("grey16", im_16)
tiff("big", im, big_tiff=True)
tiff("orient-6", im, exif=exif(6))
for c in ("tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits"):
    tiff("rgb-" + c, im, compression=c)
tiff("lzw-predictor", im, compression="tiff_lzw", tiffinfo={317: 2})
tiff("jpeg", im, compression="jpeg", quality=95)
tiff("group3", im_1, compression="group3")
tiff("group4", im_1, compression="group4")
tiff("group3-white-is-zero", im_1, compression="group3", tiffinfo={262: 0})
tiff("group4-white-is-zero", im_1, compression="group4", tiffinfo={262: 0})
tiff("group3-2d", im_1, compression="group3", tiffinfo={292: 1})
tiff("group3-fill", im_1, compression="group3", tiffinfo={292: 4})
tiff("strips", im, compression="tiff_lzw", tiffinfo={278: 3})
tiff("pages", im, save_all=True, append_images=[im.rotate(180)])


def raw_tiff(name, order, tags, data):
    """tags: tag -> (type, values); data: strips, whose offsets and counts are added."""
    fmt = {1: "B", 3: "H", 4: "I"}
    strips, at = b"", []
    for d in data:
        at.append(8 + len(strips))
        strips += d + b"\0" * (len(d) % 2)
    offs, cnts = (324, 325) if 322 in tags else (273, 279)
    tags = {**tags, offs: (4, at), cnts: (4, [len(d) for d in data])}
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8 + len(strips))
    base = 8 + len(strips) + 2 + 12 * len(tags) + 4
    d, tail = struct.pack(order + "H", len(tags)), b""
    for tag in sorted(tags):
        kind, v = tags[tag]
        raw = struct.pack(order + f"{len(v)}{fmt[kind]}", *v)
        d += struct.pack(order + "HHI", tag, kind, len(v))
        if len(raw) <= 4:
            d += raw.ljust(4, b"\0")
        else:
            d += struct.pack(order + "I", base + len(tail))
            tail += raw + b"\0" * (len(raw) % 2)
    put(name + ".tif", head + strips + d + struct.pack(order + "I", 0) + tail)


def base(bits, photometric):
    return {256: (3, [W]), 257: (3, [H]), 258: (3, bits), 259: (3, [1]), 262: (3, [photometric]), 277: (3, [len(bits)]), 278: (3, [H])}


for order, e in (("<", "le"), (">", "be")):
    raw_tiff(f"rgb-{e}", order, base([8, 8, 8], 2), [rand(W * H * 3)])
    raw_tiff(f"grey16-{e}", order, base([16], 1), [rand(W * H * 2)])
    raw_tiff(f"rgb16-{e}", order, base([16, 16, 16], 2), [rand(W * H * 6)])
    raw_tiff(f"rgba16-{e}", order, {**base([16] * 4, 2), 338: (3, [2])}, [rand(W * H * 8)])
raw_tiff("white-is-zero", "<", base([8], 0), [rand(W * H)])
raw_tiff("white-is-zero1", "<", base([1], 0), [rand(3 * H)])
raw_tiff("grey4", "<", base([4], 1), [rand(10 * H)])
raw_tiff("palette8", "<", {**base([8], 3), 320: (3, rng.integers(0, 65536, 768).tolist())}, [rand(W * H)])
raw_tiff("palette4", "<", {**base([4], 3), 320: (3, rng.integers(0, 65536, 48).tolist())}, [rand(10 * H)])
raw_tiff("alpha-associated", "<", {**base([8] * 4, 2), 338: (3, [1])}, [rand(W * H * 4)])
raw_tiff("alpha-unspecified", "<", {**base([8] * 4, 2), 338: (3, [0])}, [rand(W * H * 4)])
raw_tiff("cmyk-raw", "<", base([8] * 4, 5), [rand(W * H * 4)])
raw_tiff("tiles", "<", {k: v for k, v in {**base([8] * 3, 2), 322: (3, [16]), 323: (3, [16])}.items() if k != 278}, [rand(16 * 16 * 3) for _ in range(2)])
raw_tiff("planar", "<", {**base([8] * 3, 2), 284: (3, [2])}, [rand(W * H) for _ in range(3)])
raw_tiff("orient-5-be", ">", {**base([8] * 3, 2), 274: (3, [5])}, [rand(W * H * 3)])


def pnm(name, kind, limit, data, space=b"\n"):
    head = space.join([kind, b"%d" % W, b"%d" % H] + ([b"%d" % limit] if limit else []))
    put(name + ".pnm", head + b"\n" + data)


put("rgb.pnm", encode(im, format="PPM"))
put("grey.pnm", encode(im_l, format="PPM"))
put("grey16.pnm", encode(im_16, format="PPM"))
put("bilevel.pnm", encode(im_1, format="PPM"))
pnm("comments", b"P6 # made by hand\n# 1 2 3\r", 255, rgb.tobytes(), b"\t \v\f\r# x\n")
pnm("rgb-max", b"P6", 10, rng.integers(0, 14, rgb.shape, dtype=np.uint8).tobytes())
pnm("grey-max", b"P5", 2, rng.integers(0, 4, grey.shape, dtype=np.uint8).tobytes())
pnm("rgb-max16", b"P6", 1000, rng.integers(0, 1100, rgb.shape).astype(">u2").tobytes())
pnm("grey-max16", b"P5", 60000, rng.choice([0, 1, 7, 99, 200, 233, 300, 9000, 60000, 65535], grey.shape).astype(">u2").tobytes())
corpus.close()
