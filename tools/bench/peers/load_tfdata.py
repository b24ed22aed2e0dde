"""tf.data, from TFRecord shards: see loading.py. As TensorFlow's guide to its performance
and its models for ImageNet do it: interleaved files, decode_and_crop_jpeg of a box of
sample_distorted_bounding_box, parallel maps, prefetching; all tuned by itself, in a pool of
two threads."""

import glob
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

import loading

AUTOTUNE = tf.data.AUTOTUNE
FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}


def sample(record, floats):
    fields = tf.io.parse_single_example(record, FEATURES)
    jpeg = fields["image/encoded"]
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        bounding_boxes=tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4]),
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    y, x, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    image = tf.io.decode_and_crop_jpeg(jpeg, tf.stack([y, x, height, width]), channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, [loading.SIDE, loading.SIDE]))
    if floats:
        image = (image - loading.MEAN_255) / loading.STD_255
    else:
        image = tf.saturate_cast(tf.round(image), tf.uint8)
    return image, fields["image/class/label"]


def main():
    _, floats, data, epochs, check = loading.arguments()
    shards = sorted(glob.glob(os.path.join(data, "*.tfrecord")))
    options = tf.data.Options()
    options.threading.private_threadpool_size = loading.WORKERS
    options.deterministic = False
    dataset = (
        tf.data.Dataset.from_tensor_slices(shards)
        .shuffle(len(shards))
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=AUTOTUNE)
        .shuffle(1000)
        .map(lambda record: sample(record, floats), num_parallel_calls=AUTOTUNE)
        .batch(loading.BATCH)
        .prefetch(AUTOTUNE)
        .with_options(options)
    )
    loading.run(lambda: iter(dataset), epochs, check)


if __name__ == "__main__":
    main()
