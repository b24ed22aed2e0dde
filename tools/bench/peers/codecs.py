"""Contenders of `bench jpeg`: python codecs.py CODEC LIST

LIST has a line for each image: x y width height path, the first four a region. A
contender reads the files into memory and says "ready", and with it what it is. It is
then asked for passes over all images, one line each:

    whole        decode each to RGB
    whole FILE   the same, and write the pixels of all, one after the other, to FILE

and answers each with the seconds of processor time it took. It works in one thread."""

import io
import sys
import time


def simplejpeg_():
    import simplejpeg

    return f"simplejpeg {simplejpeg.__version__}", bytes, lambda data: simplejpeg.decode_jpeg(data, "RGB")


def opencv():
    import cv2
    import numpy

    cv2.setNumThreads(1)
    # The orientation is left alone, as by the others.
    how = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    wrap = lambda data: numpy.frombuffer(data, numpy.uint8)
    return f"OpenCV {cv2.__version__}", wrap, lambda data: cv2.imdecode(data, how)


def pillow():
    import PIL
    from PIL import Image, features

    name = f"Pillow {PIL.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}"
    return name, bytes, lambda data: Image.open(io.BytesIO(data)).convert("RGB")


def torchvision_():
    import torch
    import torchvision

    torch.set_num_threads(1)
    rgb = torchvision.io.ImageReadMode.RGB
    wrap = lambda data: torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return f"torchvision {torchvision.__version__}", wrap, lambda data: torchvision.io.decode_jpeg(data, rgb)


def raw(image):
    """The pixels row by row, RGB for each."""
    if hasattr(image, "permute"):
        return image.permute(1, 2, 0).contiguous().numpy().tobytes()
    return image.tobytes()


def main():
    codec, path = sys.argv[1:]
    name, wrap, decode = {"simplejpeg": simplejpeg_, "opencv": opencv, "pillow": pillow, "torchvision": torchvision_}[codec]()
    images = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            with open(line.rstrip("\n").split(" ", 4)[4], "rb") as file:
                images.append(wrap(file.read()))
    print("ready", name, flush=True)
    for line in sys.stdin:
        task, _, out = line.rstrip("\n").partition(" ")
        if task != "whole":
            sys.exit(f"{codec}: no such task: {task}")
        start = time.process_time()
        if out:
            with open(out, "wb") as file:
                for data in images:
                    file.write(raw(decode(data)))
        else:
            for data in images:
                decode(data)
        print(time.process_time() - start, flush=True)


main()
