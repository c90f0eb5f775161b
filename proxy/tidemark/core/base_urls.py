"""Recognizes base URLs of OpenAI-compatible servers that lack their version."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

_VERSION = re.compile(r"/v[0-9]")


def lacks_version(base_url: str) -> bool:
    """Return whether no part of a base URL's path is a version, such as ``/v1``. A few servers want none."""
    return _VERSION.search(urlsplit(base_url).path) is None
