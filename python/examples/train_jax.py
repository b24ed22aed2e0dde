"""Train a small convolutional network with JAX.

shardify pack ~/flowers shards                   # with the folders train and val
python train_jax.py shards
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import shardread

Params = dict[str, Any]


def init(key: jax.Array, classes: int, widths: tuple[int, ...] = (32, 64, 128)) -> Params:
    """Return the weights of a network: convolutions, and a linear layer."""
    params: Params = {"conv": []}
    before = 3
    for width in widths:
        key, sub = jax.random.split(key)
        weights = jax.random.normal(sub, (3, 3, before, width)) * (2 / (9 * before)) ** 0.5
        params["conv"].append({"w": weights, "b": jnp.zeros(width)})
        before = width
    params["linear"] = {"w": jnp.zeros((before, classes)), "b": jnp.zeros(classes)}
    return params


def forward(params: Params, images: jax.Array) -> jax.Array:
    """Return the logits of images, [n, height, width, 3] bytes."""
    x = images.astype(jnp.float32) / 127.5 - 1
    for layer in params["conv"]:
        x = lax.conv_general_dilated(
            x, layer["w"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x + layer["b"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return x.mean((1, 2)) @ params["linear"]["w"] + params["linear"]["b"]


def loss_of(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    logits = jax.nn.log_softmax(forward(params, images))
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@jax.jit
def step(
    params: Params, momentum: Params, images: jax.Array, labels: jax.Array, lr: float
) -> tuple[Params, Params, jax.Array]:
    """Return the weights and their momentum after a step, and the loss before it."""
    loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    return jax.tree.map(lambda p, m: p - lr * m, params, momentum), momentum, loss


@jax.jit
def hits(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
    return (forward(params, images).argmax(1) == labels).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network with JAX.")
    parser.add_argument("data", help="where `shardify pack` wrote to: a folder, s3://…, https://…")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--size", type=int, default=64, help="height and width of images")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    # XLA wants the channels last, and turns bytes into floats in the first kernel: a quarter of the
    # memory to move. framework="jax" makes the batches jax.Arrays, on a CPU without a copy.
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
        framework="jax",
    )
    val = shardread.Loader(
        args.data,
        split="val",
        batch_size=args.batch_size,
        shuffle="none",
        ends="exact",
        transform=[shardread.Resize((args.size, args.size))],
        layout="NHWC",
        framework="jax",
    )

    params = init(jax.random.key(args.seed), len(train.classes))
    momentum = jax.tree.map(jnp.zeros_like, params)
    for epoch in range(args.epochs):
        train.set_epoch(epoch)
        losses = []
        for images, labels in train:
            params, momentum, loss = step(params, momentum, images, labels, args.lr)
            losses.append(loss)
        right = sum(hits(params, images, labels) for images, labels in val)
        print(
            f"epoch {epoch}  loss {jnp.stack(losses).mean():.4f}  "
            f"val {100 * right / val.samples:.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
