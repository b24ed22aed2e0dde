"""Writes TFRecord shards with TensorFlow, as others lay them out, and prints what is
in them.

    tfrecord_write.py DIR PHOTOGRAPHS

A line of output is a JSON object: file, and samples as a list of
[key, {field: sha256 of the bytes}].
"""

import hashlib
import io
import json
import os
import struct
import sys

import PIL.Image
import tensorflow as tf

base, photographs = sys.argv[1:3]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def feature(values):
    if not isinstance(values, list):
        values = [values]
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if values and isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    values = [v.encode() if isinstance(v, str) else v for v in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def write(file, examples, compression=""):
    """examples: (features, the fields they should become, the key or None)."""
    samples, offset = [], 0
    with tf.io.TFRecordWriter(os.path.join(base, file), compression) as writer:
        for features, fields, key in examples:
            example = tf.train.Example(features=tf.train.Features(feature={k: feature(v) for k, v in features.items()}))
            data = example.SerializeToString()
            writer.write(data)
            samples.append([key or f"record-{offset:012d}", {k: sha(v) for k, v in fields.items()}])
            offset += len(data) + 16
    print(json.dumps({"file": file, "samples": samples}))


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


jpegs, pngs = [], []
for name in sorted(os.listdir(photographs))[:8]:
    with open(os.path.join(photographs, name), "rb") as f:
        jpegs.append((name, f.read()))
    png = io.BytesIO()
    PIL.Image.effect_noise((8, 8), 50).save(png, "PNG")
    pngs.append(png.getvalue())

# TensorFlow's build_imagenet_data.py.
imagenet = []
for i, (name, data) in enumerate(jpegs):
    boxes = [0.1, 0.25, 0.5][: i % 4]
    rest = {
        "image/class/synset": ["n01440764"], "image/class/text": ["tench, Tinca tinca \u00e9 <&>"], "image/filename": [name],
    }
    features = {
        "image/height": 480, "image/width": 640, "image/colorspace": "RGB", "image/channels": 3,
        "image/class/label": i + 1, "image/class/synset": "n01440764", "image/class/text": "tench, Tinca tinca \u00e9 <&>",
        "image/object/bbox/xmin": boxes, "image/object/bbox/label": [i + 1] * len(boxes),
        "image/format": "JPEG", "image/filename": name, "image/encoded": data,
    }
    if boxes:
        rest["image/object/bbox/label"] = [i + 1] * len(boxes)
        rest["image/object/bbox/xmin"] = boxes
    imagenet.append((features, {"jpg": data, "cls": b"%d" % (i + 1), "features.json": compact(rest)}, None))
write("train-00000-of-00002.tfrecord", imagenet)
write("imagenet.tfrecord.gz", imagenet, "GZIP")

# TensorFlow Datasets: image and label.
write("mnist-train.tfrecord-00000-of-00001", [({"image": p, "label": i}, {"png": p, "cls": b"%d" % i}, None) for i, p in enumerate(pngs)])

# img2dataset: the key, a feature named after the format, and columns.
write("img2dataset.tfrecord", [
    ({"key": f"{i:09d}", "jpg": d, "txt": "a cat", "width": 640, "similarity": 0.5, "url": "https://x/y.jpg"},
     {"jpg": d, "txt": b"a cat", "url": b"https://x/y.jpg", "features.json": compact({"similarity": [0.5], "width": [640]})}, f"{i:09d}")
    for i, (_, d) in enumerate(jpegs)
])

# Masks, several images, negative and large numbers, nothing at all.
write("odd.tfrecord", [
    ({"image/encoded": pngs[0], "image/segmentation/class/encoded": pngs[1], "image/segmentation/class/format": "png"},
     {"png": pngs[0], "image.segmentation.class.encoded": pngs[1], "features.json": compact({"image/segmentation/class/format": ["png"]})}, None),
    ({"video/frames": pngs[:3], "label": [1, 2]},
     {"video.frames.0": pngs[0], "video.frames.1": pngs[1], "video.frames.2": pngs[2], "features.json": compact({"label": [1, 2]})}, None),
    ({"n": [-1, 2**63 - 1, -(2**63)], "x": [float("nan"), float("inf"), -0.0]},
     {"features.json": b'{"n":[-1,9223372036854775807,-9223372036854775808],"x":["NaN","+Inf",-0]}'}, None),
    ({"empty": []}, {}, None),
    ({}, {}, None),
])
