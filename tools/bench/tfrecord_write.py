"""Packs a tree of class folders with TensorFlow's TFRecordWriter, as its tutorial
shows, with ImageNet's names for the image and its label:
python tfrecord_write.py SRC DST SHARD_BYTES
Its last line of output is the seconds it took, without the imports."""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

src, dst, shard_bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
start = time.perf_counter()
os.makedirs(dst)
classes = sorted(e.name for e in os.scandir(src) if e.is_dir())
writer, written, shards = None, 0, 0
for label, name in enumerate(classes):
    folder = os.path.join(src, name)
    for file in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file), "rb") as f:
            data = f.read()
        feature = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
            "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            "image/class/text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name.encode()])),
            "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[file.encode()])),
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
print(time.perf_counter() - start)
