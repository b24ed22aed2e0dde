"""Writes tar shards as others write them, and prints what is in them.

    tar_write.py DIR PHOTOGRAPHS

A line of output is a JSON object: file, and samples as a list of
[key, {field: sha256 of the bytes}].
"""

import hashlib
import io
import json
import os
import sys
import tarfile

import webdataset

base, photographs = sys.argv[1:3]


def sha(data):
    return hashlib.sha256(data).hexdigest()


def show(file, samples):
    print(json.dumps({"file": file, "samples": [[k, {n: sha(d) for n, d in f.items()}] for k, f in samples]}))


samples = []
for i, name in enumerate(sorted(os.listdir(photographs))[:12]):
    with open(os.path.join(photographs, name), "rb") as f:
        samples.append((f"train/{name.split('.')[0]}", {"cls": b"%d" % i, "jpg": f.read(), "json": b'{"a": %d}' % i}))
samples.append(("d/" * 90 + "x" * 120, {"cls": b"1", "jpg": b"x" * 1000, "json": b"{}"}))
samples.append(("caf\u00e9/\u6f22", {"cls": b"2", "jpg": b"", "json": b"{}"}))


def write_webdataset(file, **options):
    with webdataset.TarWriter(os.path.join(base, file), **options) as writer:
        for key, fields in samples:
            writer.write({"__key__": key, **fields})
    show(file, samples)


write_webdataset("wds.tar")
write_webdataset("wds-mtime.tar", mtime=1.5)
write_webdataset("wds.tar.gz")

with webdataset.ShardWriter(os.path.join(base, "shards-%03d.tar"), maxcount=100, verbose=0) as writer:
    for key, fields in samples:
        writer.write({"__key__": key, **fields})
show("shards-000.tar", samples)

for name, fmt in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
    written = [s for s in samples if fmt != tarfile.USTAR_FORMAT or len(s[0]) < 100]
    with tarfile.open(os.path.join(base, name + ".tar"), "w", format=fmt) as tar:
        for key, fields in written:
            folder = tarfile.TarInfo(os.path.dirname(key))
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            for field, data in fields.items():
                member = tarfile.TarInfo(f"{key}.{field}")
                member.size, member.mtime, member.uname = len(data), 1e9 + 0.25, "someone"
                tar.addfile(member, io.BytesIO(data))
                link = tarfile.TarInfo(f"{key}.link.{field}")
                link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
                tar.addfile(link)
    show(name + ".tar", written)
