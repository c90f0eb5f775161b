"""Builds what a release consists of, byte for byte the same from the same commit: ``python deploy/release/build.py``.

The wheel is built from the unpacked source distribution, as an installer would, so what the latter lacks shows here.
``tidemark.rb`` is the Homebrew formula of that source distribution. ``provenance.json`` is an in-toto statement
(predicate SLSA provenance 1) of what was built, from which commit and which locked packages. It is not signed: the
workflow of a release attests it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
LOCK = ROOT / "requirements" / "runtime.txt"
FORMULA = Path(__file__).with_name("tidemark.rb")
PINNED = re.compile(r"^(?P<name>[a-z0-9.-]+)==(?P<version>[^ ;]+)", re.MULTILINE)
STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE = "tidemark-proxy/deploy/release/build.py@v1"


def git(*arguments: str, root: Path) -> str:
    """Return what a git command prints.

    :raises CalledProcessError: it failed, as it does outside of a checkout
    """
    run = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return run.stdout.strip()


def build(root: Path, target: Path, epoch: str) -> list[Path]:
    """Build the source distribution, and the wheel from it.

    :param root: a checkout, or an unpacked source distribution
    :param target: an empty folder
    :param epoch: the time that all files in both archives have, in Unix seconds
    :returns: both files
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch, "PYTHONHASHSEED": "0"}
    run = [sys.executable, "-m", "hatchling", "build", "--directory", str(target), "--target"]
    subprocess.run([*run, "sdist"], cwd=root, check=True, env=environment, stdout=subprocess.DEVNULL)
    (source,) = target.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        subprocess.run([*run, "wheel"], cwd=unpacked, check=True, env=environment, stdout=subprocess.DEVNULL)
    (wheel,) = target.glob("*.whl")
    return [source, wheel]


def sha256(path: Path) -> str:
    """Return a file's digest, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def formula(source: Path) -> str:
    """Return the Homebrew formula that installs a source distribution."""
    version = source.name.removeprefix("tidemark_proxy-").removesuffix(".tar.gz")
    return FORMULA.read_text("utf-8").replace("@VERSION@", version).replace("@SHA256@", sha256(source))


def provenance(files: list[Path], commit: str, epoch: str) -> dict[str, Any]:
    """Return the statement of what was built, from what and with what."""
    packages = [
        {"uri": f"pkg:pypi/{found['name']}@{found['version']}"} for found in PINNED.finditer(LOCK.read_text("utf-8"))
    ]
    return {
        "_type": STATEMENT,
        "subject": [{"name": file.name, "digest": {"sha256": sha256(file)}} for file in files],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"commit": commit, "SOURCE_DATE_EPOCH": epoch},
                "internalParameters": {"python": platform.python_version()},
                "resolvedDependencies": [
                    {"uri": "git+commit", "digest": {"gitCommit": commit}},
                    {"name": LOCK.relative_to(ROOT).as_posix(), "digest": {"sha256": sha256(LOCK)}},
                    *packages,
                ],
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER_ID", "local")}},
        },
    }


def main() -> None:
    """Build a release into a folder, which must be empty or not there."""
    parser = argparse.ArgumentParser(description="Build a release.")
    parser.add_argument("target", type=Path, nargs="?", default=ROOT / "dist")
    target: Path = parser.parse_args().target.resolve()
    if target.is_dir() and any(target.iterdir()):
        parser.error(f"{target} is not empty; remove it first")
    if git("status", "--porcelain", root=ROOT):
        parser.error("there are changes that are not committed; a release is built from a commit")
    commit, epoch = git("rev-parse", "HEAD", root=ROOT), git("log", "-1", "--format=%ct", root=ROOT)
    target.mkdir(parents=True, exist_ok=True)
    files = build(ROOT, target, epoch)
    statement = json.dumps(provenance(files, commit, epoch), indent=2)
    (target / "tidemark.rb").write_text(formula(files[0]), encoding="utf-8")
    (target / "provenance.json").write_text(statement + "\n", encoding="utf-8")
    for file in files:
        sys.stdout.write(f"{sha256(file)}  {file.name}\n")


if __name__ == "__main__":
    main()
