"""LitData's StreamingDataset and StreamingDataLoader, from chunks on the disk: see
loading.py. Its serializer of JPEG decodes to tensors, by torchvision's decode_jpeg."""

from litdata import StreamingDataLoader, StreamingDataset

import loading
import transforms


class Photographs(StreamingDataset):
    def __init__(self, data, transform):
        super().__init__(data, shuffle=True)
        self.change = transform

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        image = sample["image"]
        # A photograph in grey has one channel.
        return self.change(image.expand(3, -1, -1)), sample["label"]


def main():
    _, floats, data, epochs, check = loading.arguments()
    dataset = Photographs(data, transforms.of_tensors(floats))
    loader = StreamingDataLoader(dataset, batch_size=loading.BATCH, num_workers=loading.WORKERS, persistent_workers=True)
    loading.run(lambda: iter(loader), epochs, check)


if __name__ == "__main__":
    main()
