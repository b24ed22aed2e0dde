"""Train an image classifier of Hugging Face transformers with its Trainer.

shardify pack ~/imagenet shards                             # with the folders train and val
python train_transformers.py shards
torchrun --nproc-per-node 8 train_transformers.py shards    # eight, which share each epoch
python train_transformers.py shards --resume                # goes on from the last checkpoint

Batches come from a Loader, whose place is part of every checkpoint: a run that goes on gets the
batch that comes next. Validation, whose samples Trainer gathers from all processes, has a Dataset.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    AutoConfig,
    AutoModelForImageClassification,
    EvalPrediction,
    ResNetConfig,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import ExportableState

import shardread


class Batches(IterableDataset):
    """A loader's batches, by the names that models of transformers have for them.

    Trainer counts off the batches of an epoch that a checkpoint has seen. The loader begins behind
    them, so that empty ones stand for them here, and none of them is read again.
    """

    def __init__(self, loader: shardread.Loader) -> None:
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        yielded = 0
        for batch in self.loader.batches():
            for _ in range(yielded, batch.number):
                yield {}
            yielded = batch.number + 1
            yield {"pixel_values": batch["image"], "labels": batch["label"]}
            del batch  # not to be held while the next one is waited for


class Place(TrainerCallback, ExportableState):
    """Keeps the loader's place in a checkpoint's trainer_state.json."""

    def __init__(self, loader: shardread.Loader) -> None:
        self.loader = loader

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"place": self.loader.state_dict()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # Of the checkpoint, if training goes on from one.
        self.loader.load_state_dict(state.stateful_callbacks["Place"]["attributes"]["place"])


class LoaderTrainer(Trainer):
    """A Trainer whose training batches come from a Loader."""

    def __init__(self, loader: shardread.Loader, **arguments: Any) -> None:
        super().__init__(**arguments, callbacks=[Place(loader)])
        self.loader = loader

    def get_train_dataloader(self) -> DataLoader:
        # Not for accelerator.prepare: the loader gives each process its own part, on its own
        # device, and prepare would take a batch ahead of the one that the place is behind.
        return DataLoader(Batches(self.loader), batch_size=None)

    def num_examples(self, dataloader: DataLoader) -> int:
        data = dataloader.dataset
        return (
            data.loader.samples if isinstance(data, Batches) else super().num_examples(dataloader)
        )


def named(sample: dict[str, Any]) -> dict[str, Any]:
    return {"pixel_values": sample["image"], "labels": sample["label"]}


def accuracy(outcome: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((outcome.predictions.argmax(1) == outcome.label_ids).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train an image classifier with Trainer.")
    parser.add_argument("data", help="where `shardify pack` wrote to: a folder, s3://…, https://…")
    parser.add_argument("--model", help="a folder with its config.json, or its name on the Hub")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256, help="of each process")
    parser.add_argument("--accumulate", type=int, default=1, metavar="BATCHES", help="of a step")
    parser.add_argument("--size", type=int, default=224, help="height and width of images")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoints", default="checkpoints", metavar="DIR")
    parser.add_argument("--save-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    training = TrainingArguments(
        args.checkpoints,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        gradient_accumulation_steps=args.accumulate,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        seed=args.seed,
        bf16=cuda and torch.cuda.is_bf16_supported(),
        dataloader_pin_memory=cuda,
        use_cpu=not torch.accelerator.is_available(),  # of several processes, it has to be said
        eval_strategy="epoch",
        logging_strategy="epoch",
        save_steps=args.save_every,
        save_total_limit=3,
        report_to="none",
    )
    # Made after the TrainingArguments, which set up torch.distributed, so that it knows its rank.
    # server="host": the processes of a host share one reader.
    loader = shardread.Loader(
        args.data,
        split="train",
        batch_size=args.batch_size,
        seed=args.seed,
        transform=[
            shardread.RandomResizedCrop(args.size),
            shardread.RandomHorizontalFlip(),
            shardread.Normalize(shardread.IMAGENET),
        ],
        device=training.device,
        server="host",
    )
    val = shardread.Dataset(
        args.data,
        split="val",
        transform=[
            shardread.Resize(args.size * 8 // 7),
            shardread.CenterCrop(args.size),
            shardread.Normalize(shardread.IMAGENET),
        ],
        layout="NCHW",
        fields=[],
        map=named,
        server="host",
    )

    names = dict(enumerate(loader.classes))
    numbers = {name: number for number, name in names.items()}
    if args.model:
        config = AutoConfig.from_pretrained(args.model, id2label=names, label2id=numbers)
    else:
        config = ResNetConfig(id2label=names, label2id=numbers)  # ResNet-50
    set_seed(args.seed)
    trainer = LoaderTrainer(
        loader,
        model=AutoModelForImageClassification.from_config(config),  # or from_pretrained
        args=training,
        eval_dataset=val,
        compute_metrics=accuracy,
    )
    trainer.train(resume_from_checkpoint=args.resume)


if __name__ == "__main__":
    main()
