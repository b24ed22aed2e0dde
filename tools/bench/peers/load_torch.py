"""PyTorch's DataLoader: see loading.py. KIND is
  pil          torchvision's ImageFolder, decoded by Pillow
  decode_jpeg  ImageFolder, decoded by torchvision.io.decode_jpeg, transforms of tensors
  webdataset   WebDataset, from tar shards, decoded by Pillow
"""

import glob
import os

import torch
import torchvision
import webdataset

import loading
import transforms


def read_jpeg(path):
    return torchvision.io.decode_jpeg(torchvision.io.read_file(path), torchvision.io.ImageReadMode.RGB)


def main():
    kind, floats, data, epochs, check = loading.arguments()
    workers = {"num_workers": loading.WORKERS, "persistent_workers": True}
    if kind == "webdataset":
        shards = sorted(glob.glob(os.path.join(data, "*.tar")))
        dataset = (
            webdataset.WebDataset(shards, shardshuffle=len(shards))
            .shuffle(1000)
            .decode("pil")
            .to_tuple("jpg", "cls")
            .map_tuple(transforms.of_pictures(floats), int)
            .batched(loading.BATCH)
        )
        loader = webdataset.WebLoader(dataset, batch_size=None, **workers)
    else:
        if kind == "pil":
            dataset = torchvision.datasets.ImageFolder(data, transforms.of_pictures(floats))
        else:
            dataset = torchvision.datasets.ImageFolder(data, transforms.of_tensors(floats), loader=read_jpeg)
        loader = torch.utils.data.DataLoader(dataset, batch_size=loading.BATCH, shuffle=True, **workers)
    loading.run(lambda: iter(loader), epochs, check)


if __name__ == "__main__":
    main()
