"""Train a ResNet with PyTorch Lightning, and go on exactly where a run was stopped.

    shardify pack ~/imagenet shards                  # with the folders train and val
    python train_lightning.py shards
    python train_lightning.py shards --devices 8     # eight processes, which share each epoch
    python train_lightning.py shards --resume        # goes on from the last checkpoint

A Loader has state_dict and load_state_dict, so Lightning keeps its place in every checkpoint, as it
does for torchdata's StatefulDataLoader, and a run that goes on gets the batch that comes next.
"""

from __future__ import annotations

import argparse

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional

import shardread


class Data(lightning.LightningDataModule):
    def __init__(self, place: str, batch_size: int, size: int, seed: int) -> None:
        super().__init__()
        self.place, self.batch_size, self.size, self.seed = place, batch_size, size, seed

    # Lightning calls these in every process, when torch.distributed is set up: from it a Loader
    # learns its rank. It needs no sampler, and each pass over it is the next epoch.
    def train_dataloader(self) -> shardread.Loader:
        return shardread.Loader(
            self.place,
            split="train",
            batch_size=self.batch_size,
            seed=self.seed,
            transform=[
                shardread.RandomResizedCrop(self.size),
                shardread.RandomHorizontalFlip(),
                shardread.Normalize(shardread.IMAGENET),
            ],
        )

    def val_dataloader(self) -> shardread.Loader:
        return shardread.Loader(
            self.place,
            split="val",
            batch_size=self.batch_size,
            shuffle="none",
            ends="exact",
            transform=[
                shardread.Resize(self.size * 8 // 7),
                shardread.CenterCrop(self.size),
                shardread.Normalize(shardread.IMAGENET),
            ],
        )


class Model(lightning.LightningModule):
    def __init__(self, name: str, classes: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = getattr(torchvision.models, name)(num_classes=classes)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
        images, labels = batch
        loss = functional.cross_entropy(self.model(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> None:
        images, labels = batch
        right = (self.model(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, prog_bar=True, sync_dist=True, batch_size=len(labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.hparams["lr"], momentum=0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a ResNet with PyTorch Lightning.")
    parser.add_argument("data", help="where `shardify pack` wrote to: a folder, s3://…, https://…")
    parser.add_argument("--model", default="resnet50", help="a classifier of torchvision.models")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--steps", type=int, default=-1, help="stop after so many steps")
    parser.add_argument("--devices", default="auto", help="processes, a GPU each; all GPUs")
    parser.add_argument("--batch-size", type=int, default=256, help="of each process")
    parser.add_argument("--size", type=int, default=224, help="height and width of images")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where checkpoints go")
    parser.add_argument("--save-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    args = parser.parse_args()

    lightning.seed_everything(args.seed, verbose=False)
    data = Data(args.data, args.batch_size, args.size, args.seed)
    with shardread.Loader(args.data, split="train") as loader:
        classes = len(loader.classes)
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        max_steps=args.steps,
        devices=args.devices,
        default_root_dir=args.runs,
        callbacks=ModelCheckpoint(args.runs, save_last=True, every_n_train_steps=args.save_every),
    )
    trainer.fit(
        Model(args.model, classes, args.lr), data, ckpt_path="last" if args.resume else None
    )


if __name__ == "__main__":
    main()
