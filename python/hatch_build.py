"""Build the programs shardify and shardread with Go, for the wheel.

They are put where scripts go, so that both are on PATH after installation. ``go env``
says for which platform: GOOS and GOARCH choose another than this one, and the wheel is
tagged for it. An sdist takes the Go sources along.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROGRAMS = ["shardify", "shardread"]

# The oldest systems that the programs run on: where libc is used at all, it is by names
# that every version has; Go itself says since when it runs on macOS.
PLATFORMS = {
    ("linux", "amd64"): "manylinux_2_17_x86_64.manylinux2014_x86_64",
    ("linux", "arm64"): "manylinux_2_17_aarch64.manylinux2014_aarch64",
    ("darwin", "amd64"): "macosx_12_0_x86_64",
    ("darwin", "arm64"): "macosx_12_0_arm64",
    ("windows", "amd64"): "win_amd64",
}


class GoPrograms(BuildHookInterface[Any]):
    """The two programs, as scripts of the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build them, and say so in the wheel's tag; or collect their sources."""
        self.folder = Path(tempfile.mkdtemp(prefix="shardread-build-"))
        if self.target_name == "sdist":
            build_data["force_include"].update(self.sources())
            return
        goos, goarch = self.go("env", "GOOS", "GOARCH").split()
        if (goos, goarch) not in PLATFORMS:
            raise SystemExit(f"shardread has no wheel for {goos}/{goarch}")
        suffix = ".exe" if goos == "windows" else ""
        for name in PROGRAMS:
            target = self.folder / (name + suffix)
            self.go("build", "-trimpath", "-ldflags=-s -w", "-o", str(target), f"./cmd/{name}")
            build_data["shared_scripts"][str(target)] = target.name
        build_data["tag"] = f"py3-none-{PLATFORMS[goos, goarch]}"
        build_data["pure_python"] = False
        build_data["force_include"][str(self.module() / "LICENSE")] = "shardread/LICENSE"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built."""
        shutil.rmtree(self.folder)

    def module(self) -> Path:
        """Find the Go module: around this folder, or in the sdist."""
        root = Path(self.root)
        for folder in (root / "go", root.parent):
            if (folder / "go.mod").exists():
                return folder
        raise SystemExit(f"neither {root / 'go'} nor {root.parent} has the Go sources")

    def go(self, *args: str) -> str:
        """Run the go command in the module, and return what it prints."""
        go = shutil.which("go")
        if go is None:
            raise SystemExit(
                "building shardread needs Go, 1.26 or later, and there is no `go` on PATH: "
                "see https://go.dev/dl, or install a wheel, which has the programs inside"
            )
        run = subprocess.run(
            [go, *args],
            cwd=self.module(),
            env={**os.environ, "CGO_ENABLED": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise SystemExit(f"go {' '.join(args)}: {run.stderr.strip()}")
        return run.stdout

    def sources(self) -> dict[str, str]:
        """List the Go files that the programs are made of, on every platform."""
        module = self.module()
        files = {module / name for name in ("go.mod", "go.sum", "LICENSE")}
        text = self.go("list", "-deps", "-json", "./cmd/...")
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            package, at = decoder.raw_decode(text, at)
            at += len(text[at:]) - len(text[at:].lstrip())
            if package.get("Module", {}).get("Main"):
                for kind in (
                    "GoFiles",
                    "IgnoredGoFiles",
                    "SFiles",
                    "IgnoredOtherFiles",
                    "EmbedFiles",
                ):
                    names = (name for name in package.get(kind, []) if "_test." not in name)
                    files.update(Path(package["Dir"]) / name for name in names)
        return {str(file): f"go/{file.relative_to(module).as_posix()}" for file in sorted(files)}
