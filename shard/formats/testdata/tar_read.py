"""Reads tar shards with the readers that people have, and prints what each finds.

    tar_read.py DIR

DIR holds x.tar, x.tar.gz and x.tar.zst, and uniform.tar, whose samples all have the
same fields, as Hugging Face wants it. A line of output is a JSON object: reader, and
samples as a list of [key, {field: sha256 of the bytes}].
"""

import hashlib
import json
import os
import sys
import tarfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_CACHE"] = os.path.join(sys.argv[1], "cache")

import datasets
import webdataset

base = sys.argv[1]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def show(reader, samples):
    print(json.dumps({"reader": reader, "samples": samples}))


def read_webdataset(url):
    found = []
    for sample in webdataset.WebDataset(url, shardshuffle=False):
        found.append([sample["__key__"], {k: sha(v) for k, v in sample.items() if not k.startswith("__")}])
    return found


def read_tarfile(path):
    found = []
    with tarfile.open(path) as tar:
        for member in tar:
            assert member.isreg() and member.mode == 0o444 and member.mtime == 0, member
            assert member.uid == member.gid == 0 and member.uname == member.gname == "", member
            directory, name = os.path.split(member.name)
            stem, field = name.split(".", 1)
            key = os.path.join(directory, stem)
            if not found or found[-1][0] != key:
                found.append([key, {}])
            found[-1][1][field] = sha(tar.extractfile(member).read())
    return found


def read_datasets(path):
    found = []
    data = datasets.load_dataset("webdataset", data_files={"train": path}, split="train", streaming=True)
    for name, feature in data.features.items():
        if isinstance(feature, datasets.Image):
            data = data.cast_column(name, datasets.Image(decode=False))
    for sample in data:
        fields = {}
        for k, v in sample.items():
            if k.startswith("__"):
                continue
            if k == "cls":
                v = str(v).encode()
            elif k == "json":
                v = json.dumps(v).encode()
            elif k == "txt":
                v = v.encode()
            elif isinstance(v, dict):
                v = v["bytes"]
            fields[k] = sha(v)
        found.append([sample["__key__"], fields])
    return found


show("webdataset x.tar", read_webdataset(f"{base}/x.tar"))
show("webdataset x.tar.gz", read_webdataset(f"{base}/x.tar.gz"))
# webdataset does not know zstd itself; its pipes do.
show("webdataset x.tar.zst", read_webdataset(f"pipe:zstd -dc {base}/x.tar.zst"))
show("tarfile x.tar", read_tarfile(f"{base}/x.tar"))
show("tarfile x.tar.gz", read_tarfile(f"{base}/x.tar.gz"))
show("datasets uniform.tar", read_datasets(f"{base}/uniform.tar"))
show("datasets uniform.tar.gz", read_datasets(f"{base}/uniform.tar.gz"))
