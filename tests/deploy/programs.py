"""Finds the programs that check and run the files of `deploy/`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

TOOLS = ROOT / ".venv-deploy" / "bin"
"""Where ``make check`` installs what comes as wheels: Envoy, Helm's library, the schemas of Kubernetes."""
VENV = Path(sys.executable).parent
PROXIES = ("nginx", "caddy", "envoy")
_PACKAGES = {"nginx": "nginx-light", "promtool": "prometheus", "systemd-analyze": "systemd"}
"""Debian's package, where its name is not the program's."""


def find(name: str, folder: Path | None = None) -> str:
    """The path of a program; a test without it is skipped, unless DEPLOY_REQUIRED is set.

    :param folder: where it must be; the machine's own path by default
    """
    found = shutil.which(name, path=None if folder is None else str(folder))
    if found is None:
        cure = f"apt-get install {_PACKAGES.get(name, name)}" if folder is None else "make check installs it"
        message = f"{name} is not here: {cure}"
        if os.environ.get("DEPLOY_REQUIRED"):
            pytest.fail(message)
        pytest.skip(message)
    return found
