"""Train a ResNet of torchvision's on a packed data set.

shardify pack ~/imagenet shards                      # with the folders train and val
python train_torch.py shards                         # one process; on the GPU if there is one
torchrun --nproc-per-node 8 train_torch.py shards    # eight, which share each epoch
python train_torch.py shards --resume                # goes on after the last checkpoint's batch
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torchvision
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import shardread


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a ResNet on a packed data set.")
    parser.add_argument("data", help="where `shardify pack` wrote to: a folder, s3://…, https://…")
    parser.add_argument("--model", default="resnet50", help="a classifier of torchvision.models")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, help="stop after so many steps of all epochs")
    parser.add_argument("--batch-size", type=int, default=256, help="of each process")
    parser.add_argument("--size", type=int, default=224, help="height and width of images")
    parser.add_argument("--lr", type=float, default=0.1, help="for 256 images a step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.pt"))
    parser.add_argument("--save-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    distributed = "RANK" in os.environ  # torchrun sets it
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    device = torch.device("cuda" if cuda else "cpu")
    if distributed:
        dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if distributed else (0, 1)
    torch.manual_seed(args.seed)

    # Each process makes the same Loader, learns its rank from torch.distributed, and gets its part
    # of every global batch. server="host": the processes of a host share one reader.
    # layout="NHWC": images come as channels_last wants them.
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
        layout="NHWC",
        device=device,
        server="host",
    )
    # Validation sees every image once, in the order of the shards.
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
        layout="NHWC",
        device=device,
        server="host",
    )

    network = getattr(torchvision.models, args.model)(num_classes=len(train.classes))
    network = network.to(device, memory_format=torch.channels_last)
    model = DistributedDataParallel(network) if distributed else network
    lr = args.lr * args.batch_size * world / 256
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    half = torch.bfloat16 if cuda and torch.cuda.is_bf16_supported() else torch.float16
    scaler = torch.amp.GradScaler(device.type, enabled=cuda and half is torch.float16)

    step = 0
    if args.resume:
        saved = torch.load(args.checkpoint, map_location=device)
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        scaler.load_state_dict(saved["scaler"])
        # The next pass begins with the batch after the last one that this model has seen, also with
        # another number of processes, if together they have as large a batch.
        train.load_state_dict(saved["train"])
        step = saved["step"]

    def save() -> None:
        if rank == 0:  # the loader's state is the same on all ranks
            saved = {
                "model": network.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict(),
                "train": train.state_dict(),
                "step": step,
            }
            torch.save(saved, args.checkpoint.with_suffix(".part"))
            args.checkpoint.with_suffix(".part").replace(args.checkpoint)

    total = args.epochs * len(train)
    for epoch in range(train.epoch, args.epochs):
        train.set_epoch(epoch)
        model.train()
        losses = []
        for images, labels in train:
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 + math.cos(math.pi * step / total)) / 2
            with torch.autocast(device.type, dtype=half, enabled=cuda):
                # A view whose strides are those of torch.channels_last.
                logits = model(images.permute(0, 3, 1, 2))
                loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
            step += 1
            if step % args.save_every == 0 or step == args.steps:
                save()
            if step == args.steps:
                break
        if step == args.steps:
            break
        right = validate(network, val, device, half if cuda else None)
        if rank == 0:
            loss = torch.stack(losses).mean()
            print(f"epoch {epoch}  loss {loss:.4f}  val {100 * right:.2f} %", flush=True)
    if distributed:
        dist.destroy_process_group()


@torch.inference_mode()
def validate(
    model: torch.nn.Module,
    val: shardread.Loader,
    device: torch.device,
    half: torch.dtype | None,
) -> float:
    """Return the share of images that the model gets right."""
    model.eval()
    seen = torch.zeros(2, dtype=torch.int64, device=device)  # right ones, all
    for images, labels in val:
        with torch.autocast(device.type, dtype=half, enabled=half is not None):
            right = (model(images.permute(0, 3, 1, 2)).argmax(1) == labels).sum()
        seen += torch.stack([right, torch.tensor(len(labels), device=device)])
    if dist.is_initialized():
        dist.all_reduce(seen)
    return (seen[0] / seen[1]).item()


if __name__ == "__main__":
    main()
