"""Where the programs shardify and shardread are."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

_SUFFIX = ".exe" if sys.platform == "win32" else ""


def find(name: str) -> str:
    """Return the path of a program: "shardify" or "shardread".

    It is looked for in the folder that SHARDREAD_PROGRAMS names, or, if that is not set,
    where pip puts the scripts of this installation, and on PATH.

    Raises
    ------
    FileNotFoundError
        It is nowhere.
    """
    file = name + _SUFFIX
    given = os.environ.get("SHARDREAD_PROGRAMS")
    folders = [Path(given)] if given else _folders()
    for folder in folders:
        if os.access(folder / file, os.X_OK):
            return str(folder / file)
    if not given and (found := shutil.which(file)):
        return found
    where = given or f"{', '.join(str(f) for f in folders)} and PATH"
    raise FileNotFoundError(
        f"the program {name} is not in {where}; it comes with the wheel of shardread, and "
        "SHARDREAD_PROGRAMS names the folder of another one"
    )


def _folders() -> list[Path]:
    """List where pip may have put scripts: of this Python, of the user, of --target."""
    folders = [
        Path(sysconfig.get_path("scripts")),
        Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))),
        Path(__file__).parent.parent / "bin",
    ]
    return list(dict.fromkeys(folders))
