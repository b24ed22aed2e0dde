"""Reads TFRecord shards with TensorFlow, and prints what it finds.

    tfrecord_read.py DIR

DIR holds x.tfrecord and x.tfrecord.gz. A line of output is a JSON object: file,
samples as a list of [key, {field: sha256 of the bytes}], facts as a list of what
parse_single_example gives for ImageNet's features, and whether each record is what
protobuf itself would serialise.
"""

import hashlib
import json
import sys

import tensorflow as tf

base = sys.argv[1]


def sha(data):
    return hashlib.sha256(data).hexdigest()


spec = {
    "key": tf.io.FixedLenFeature([], tf.string),
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/format": tf.io.FixedLenFeature([], tf.string),
    "image/filename": tf.io.FixedLenFeature([], tf.string),
    "image/colorspace": tf.io.FixedLenFeature([], tf.string),
    "image/height": tf.io.FixedLenFeature([], tf.int64),
    "image/width": tf.io.FixedLenFeature([], tf.int64),
    "image/channels": tf.io.FixedLenFeature([], tf.int64),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    "image/class/text": tf.io.FixedLenFeature([], tf.string),
    "json": tf.io.FixedLenFeature([], tf.string),
}

for file, compression in [("x.tfrecord", ""), ("x.tfrecord.gz", "GZIP")]:
    samples, facts, same = [], [], True
    for record in tf.data.TFRecordDataset(f"{base}/{file}", compression_type=compression):
        example = tf.train.Example.FromString(record.numpy())
        same = same and example.SerializeToString(deterministic=True) == record.numpy()
        parsed = {k: v.numpy() for k, v in tf.io.parse_single_example(record, spec).items()}
        image = parsed.pop("image/encoded")
        pixels = tf.io.decode_jpeg(image)
        assert pixels.shape == (parsed["image/height"], parsed["image/width"], parsed["image/channels"]), pixels.shape
        samples.append([parsed["key"].decode(), {"jpg": sha(image), "json": sha(parsed.pop("json"))}])
        facts.append({k: v.decode() if isinstance(v, bytes) else int(v) for k, v in parsed.items()})
    print(json.dumps({"file": file, "samples": samples, "facts": facts, "same": same}))
