"""Runs a script of which every Loader notes the batches that it yields.

    python record.py FOLDER SCRIPT [ARGUMENT...]

writes a line of JSON for each batch of the split "train" to FOLDER/RANK.jsonl: its epoch, its
number in it, and the keys of its samples.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import shardread


def run(folder: Path, script: Path, *arguments: object) -> None:
    """Run the script in this process."""

    class Recording(shardread.Loader):
        def _wrapper(self, output: str) -> Any:
            make = super()._wrapper(output)
            if self.config["split"] != "train":
                return make

            def note_and_make(raw: Any, arrays: Any) -> Any:
                line = [raw.event["epoch"], raw.event["number"], raw.keys()]
                with (folder / f"{self.rank}.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")
                return make(raw, arrays)

            return note_and_make

    folder.mkdir(exist_ok=True)
    with (
        mock.patch.object(shardread, "Loader", Recording),
        mock.patch.object(sys, "argv", [str(script), *map(str, arguments)]),
    ):
        runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
