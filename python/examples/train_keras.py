"""Train a small convolutional network with Keras on TensorFlow.

shardify pack ~/flowers shards                   # with the folders train and val
python train_keras.py shards
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

import shardread


def dataset(loader: shardread.Loader, size: int) -> tf.data.Dataset:
    """Return a tf.data.Dataset over a loader. Each pass over it is the next epoch."""
    signature = (
        tf.TensorSpec((None, size, size, 3), tf.uint8),
        tf.TensorSpec((None,), tf.int64),
    )
    data = tf.data.Dataset.from_generator(lambda: iter(loader), output_signature=signature)
    return data.apply(tf.data.experimental.assert_cardinality(len(loader))).prefetch(1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network with Keras.")
    parser.add_argument("data", help="where `shardify pack` wrote to: a folder, s3://…, https://…")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=64, help="height and width of images")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    keras.utils.set_random_seed(args.seed)

    train = shardread.Loader(
        args.data,
        split="train",
        batch_size=args.batch_size,
        seed=args.seed,
        transform=[
            shardread.RandomResizedCrop(args.size, scale=(0.5, 1)),
            shardread.RandomHorizontalFlip(),
        ],
        layout="NHWC",
    )
    val = shardread.Loader(
        args.data,
        split="val",
        batch_size=args.batch_size,
        shuffle="none",
        ends="exact",
        transform=[shardread.Resize((args.size, args.size))],
        layout="NHWC",
    )

    model = keras.Sequential(
        [keras.Input((args.size, args.size, 3)), keras.layers.Rescaling(1 / 127.5, -1)]
    )
    for width in (32, 64, 128):
        model.add(keras.layers.Conv2D(width, 3, padding="same", use_bias=False))
        model.add(keras.layers.BatchNormalization(momentum=0.9))
        model.add(keras.layers.ReLU())
        model.add(keras.layers.MaxPooling2D())
    model.add(keras.layers.GlobalAveragePooling2D())
    model.add(keras.layers.Dense(len(train.classes)))
    model.compile(
        keras.optimizers.SGD(args.lr, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        dataset(train, args.size),
        validation_data=dataset(val, args.size),
        epochs=args.epochs,
        verbose=2,
    )


if __name__ == "__main__":
    main()
