"""Train a ResNet with Hugging Face accelerate, and go on exactly where a run was stopped.

shardify pack ~/imagenet shards                  # with the folders train and val
accelerate launch train_accelerate.py shards
accelerate launch train_accelerate.py shards --resume
"""

from __future__ import annotations

import argparse

import torch
import torchvision
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn import functional

import shardread


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a ResNet with accelerate.")
    parser.add_argument("data", help="where `shardify pack` wrote to: a folder, s3://…, https://…")
    parser.add_argument("--model", default="resnet50", help="a classifier of torchvision.models")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, help="stop after so many steps of all epochs")
    parser.add_argument("--batch-size", type=int, default=256, help="of each process")
    parser.add_argument("--size", type=int, default=224, help="height and width of images")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", default="checkpoint", metavar="DIR")
    parser.add_argument("--save-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    args = parser.parse_args()

    accelerator = Accelerator()
    set_seed(args.seed)

    # Made after the Accelerator, so that it knows its rank. It gives each process its own part, on
    # its own device, so it is not for accelerator.prepare.
    train = shardread.Loader(
        args.data,
        split="train",
        batch_size=args.batch_size,
        seed=args.seed,
        transform=[
            shardread.RandomResizedCrop(args.size),
            shardread.RandomHorizontalFlip(),
            shardread.Normalize(shardread.IMAGENET),
        ],
        device=accelerator.device,
    )
    val = shardread.Loader(
        args.data,
        split="val",
        batch_size=args.batch_size,
        shuffle="none",
        ends="exact",
        transform=[
            shardread.Resize(args.size * 8 // 7),
            shardread.CenterCrop(args.size),
            shardread.Normalize(shardread.IMAGENET),
        ],
        device=accelerator.device,
    )

    model = getattr(torchvision.models, args.model)(num_classes=len(train.classes))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    # With it the loader's place in the epoch is part of what save_state and load_state keep.
    accelerator.register_for_checkpointing(train)
    if args.resume:
        accelerator.load_state(args.checkpoint)

    for epoch in range(train.epoch, args.epochs):
        train.set_epoch(epoch)
        model.train()
        losses = []
        for batch in train.batches():  # with its number and keys
            images, labels = batch
            with accelerator.autocast():
                loss = functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
            step = epoch * len(train) + batch.number + 1
            if step % args.save_every == 0 or step == args.steps:
                accelerator.save_state(args.checkpoint)
            if step == args.steps:
                return
        model.eval()
        right = torch.zeros(2, device=accelerator.device)  # right ones, all
        for images, labels in val:
            with torch.inference_mode(), accelerator.autocast():
                hits = (model(images).argmax(1) == labels).sum()
            right += torch.stack([hits, torch.tensor(len(labels), device=hits.device)])
        right = accelerator.reduce(right)
        loss = torch.stack(losses).mean()
        accelerator.print(f"epoch {epoch}  loss {loss:.4f}  val {100 * right[0] / right[1]:.2f} %")


if __name__ == "__main__":
    main()
