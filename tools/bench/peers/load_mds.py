"""MosaicML Streaming, from MDS shards on the disk, decoded by Pillow, as its encoding "jpeg"
does, in PyTorch's DataLoader: see loading.py."""

import torch
from streaming import StreamingDataset

import loading
import transforms


class Photographs(StreamingDataset):
    def __init__(self, local, transform):
        super().__init__(local=local, shuffle=True, batch_size=loading.BATCH)
        self.transform = transform

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        return self.transform(sample["image"].convert("RGB")), sample["label"]


def main():
    _, floats, data, epochs, check = loading.arguments()
    dataset = Photographs(data, transforms.of_pictures(floats))
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=loading.BATCH, num_workers=loading.WORKERS, persistent_workers=True
    )
    loading.run(lambda: iter(loader), epochs, check)


if __name__ == "__main__":
    main()
