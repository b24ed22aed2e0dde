"""TensorFlow's TFRecordWriter, as its tutorial shows, with ImageNet's names for the image
and its label: see writing.py."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

import writing


def write(src, dst, shard_bytes):
    writer, written, shards = None, 0, 0
    for path, name, label in writing.photographs(src):
        with open(path, "rb") as file:
            data = file.read()
        feature = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "image/class/text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()])),
            "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[os.path.basename(path).encode()])),
        }
        record = tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
        if writer is None or written + len(record) > shard_bytes:
            if writer is not None:
                writer.close()
            writer = tf.io.TFRecordWriter(os.path.join(dst, f"train-{shards:05d}.tfrecord"))
            written, shards = 0, shards + 1
        writer.write(record)
        written += len(record) + 16
    if writer is not None:
        writer.close()


if __name__ == "__main__":
    writing.run(write)
