"""The package shardread of this repository, from tar shards: see loading.py. PYTHONPATH says
where the package is, SHARDREAD_PROGRAMS where its program is."""

import shardread

import loading


def main():
    _, floats, data, epochs, check = loading.arguments()
    transform = [shardread.RandomResizedCrop(loading.SIDE), shardread.RandomHorizontalFlip()]
    if floats:
        transform.append(shardread.Normalize(shardread.IMAGENET))
    with shardread.Loader(data, batch_size=loading.BATCH, transform=transform, ends="exact", cpus=loading.WORKERS) as loader:
        loading.run(lambda: iter(loader), epochs, check)


if __name__ == "__main__":
    main()
