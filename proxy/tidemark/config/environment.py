"""Reads the environment's variables, and chooses the data folder.

``loading`` calls it. An empty variable counts as not set, because compose files pass empty ones on.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tidemark.config.access_sections import KeysUrl
from tidemark.config.kinds import Kind, Unfit, kind_of
from tidemark.config.masking import Address, Secret
from tidemark.config.reader import Reader
from tidemark.config.sections import ROOT_KINDS, StoreUrl
from tidemark.config.settings import Secrets
from tidemark.config.tree import Scalar, resolve
from tidemark.core.frozen import frozen

VARIABLES: Mapping[str, str] = {
    "TIDEMARK_CONFIG": "the configuration file, if `--config` names none",
    "TIDEMARK_DATA_DIR": "in place of `data_dir`; a relative path counts from the working directory",
    "TIDEMARK_STORE_URL": "in place of `store.url`",
    "TIDEMARK_UPSTREAM": "in place of `upstream`",
    "TIDEMARK_ADMIN_TOKEN": "gives access to all tenants' conversations and to changes of models; without it, "
    "only models can be changed, and only by a client on this machine if `server.host` is loopback",
    "TIDEMARK_AUDITOR_TOKEN": "shows figures, receipts and the audit log, and no text; needs `TIDEMARK_ADMIN_TOKEN`",
    "TIDEMARK_OPENID_SECRET": "this server's secret at the provider of `openid`; none for a public client",
    "TIDEMARK_SECRET": "the key of the HMAC that identifies tenants, the same for all replicas on one "
    "store; without it a generated one is stored in `data_dir`",
    "TIDEMARK_FLUSH_SECRET": "signs the posts to `memory_flush.webhook` and `events.webhook`; required if one is set",
    "TIDEMARK_ENCRYPTION_KEY": "encrypts what is stored: 32 bytes in hex or base64; of several, with commas between "
    "them, the first one writes and all read",
    "TIDEMARK_ENCRYPTION_KEY_FILE": "the file that has these keys",
    "TIDEMARK_KEYS_URL": "in place of `encryption.keys_url`",
}
"""Every variable with its effect; a test compares the documentation with it."""
_PREFIX = "TIDEMARK_"
SHORT_TOKEN_CHARACTERS = 16
"""A shorter admin token is warned of. Paths of tenants take any credential without delay, so only its length helps."""
_OTHERS = frozenset({"TIDEMARK_WORKER"})
"""What ``serve`` gives its workers."""
_SERVICE_LINK = re.compile(r"_(?:SERVICE_(?:HOST|PORT)|PORT_[0-9]+_(?:TCP|UDP|SCTP))(?:_|\Z)")
"""What Kubernetes and Docker add to a container for each service whose name begins with ``tidemark``."""


@frozen
class EnvironmentOverrides:
    """The values of variables that replace keys; None if a variable is not set."""

    store_url: Address | None
    upstream: Address | None
    keys_url: Address | None
    secrets: Secrets


def read_overrides(reader: Reader, environ: Mapping[str, str]) -> EnvironmentOverrides:
    """Read the variables that replace keys or contain secrets; the reader notes their problems."""
    key_file = environ.get("TIDEMARK_ENCRYPTION_KEY_FILE")
    if key_file and environ.get("TIDEMARK_ENCRYPTION_KEY"):
        reader.problem(0, "TIDEMARK_ENCRYPTION_KEY and TIDEMARK_ENCRYPTION_KEY_FILE are both set; unset one")
    for name in ("TIDEMARK_ADMIN_TOKEN", "TIDEMARK_AUDITOR_TOKEN"):
        warn_of_short(reader, 0, name, environ.get(name, ""))
    if environ.get("TIDEMARK_AUDITOR_TOKEN") and environ.get("TIDEMARK_AUDITOR_TOKEN") == environ.get(
        "TIDEMARK_ADMIN_TOKEN", environ["TIDEMARK_AUDITOR_TOKEN"]
    ):
        reader.problem(0, "TIDEMARK_AUDITOR_TOKEN needs a TIDEMARK_ADMIN_TOKEN that is another one; set both")
    return EnvironmentOverrides(
        _read_variable(reader, environ, "TIDEMARK_STORE_URL", kind_of(StoreUrl)),
        _read_variable(reader, environ, "TIDEMARK_UPSTREAM", ROOT_KINDS["upstream"]),
        _read_variable(reader, environ, "TIDEMARK_KEYS_URL", kind_of(KeysUrl)),
        Secrets(
            admin_token=_secret(environ, "TIDEMARK_ADMIN_TOKEN"),
            auditor_token=_secret(environ, "TIDEMARK_AUDITOR_TOKEN"),
            openid=_secret(environ, "TIDEMARK_OPENID_SECRET"),
            signing=_secret(environ, "TIDEMARK_SECRET"),
            flush=_secret(environ, "TIDEMARK_FLUSH_SECRET"),
            encryption=_secret(environ, "TIDEMARK_ENCRYPTION_KEY"),
            encryption_file=Path(key_file).absolute() if key_file else None,
        ),
    )


def warn_of_short(reader: Reader, line: int, name: str, token: str) -> None:
    """Warn of a token that can be guessed."""
    if 0 < len(token) < SHORT_TOKEN_CHARACTERS:
        reader.warn(
            line,
            f"{name} has fewer than {SHORT_TOKEN_CHARACTERS} characters, so it can be guessed; "
            "take a longer one: openssl rand -hex 16",
        )


def warn_of_unknown(reader: Reader, environ: Mapping[str, str]) -> None:
    """Warn of variables that look like Tidemark's and have no effect: a misspelt admin token protects nothing."""
    for name, text in sorted(environ.items()):
        if not name.startswith(_PREFIX) or name in VARIABLES or name in _OTHERS:
            continue
        if _SERVICE_LINK.search(name) or (name.endswith("_PORT") and "://" in text):
            continue
        endings = [variable.removeprefix(_PREFIX) for variable in VARIABLES]
        near = difflib.get_close_matches(name.removeprefix(_PREFIX), endings, n=1)
        if near:
            reader.warn(0, f"{name} has no effect; did you mean {_PREFIX}{near[0]}?")
        else:
            reader.warn(0, f"{name} has no effect; unset it. The variables are {', '.join(VARIABLES)}")


def data_folder(configured: Path | None, file: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the absolute data folder: the environment's, the file's (relative to it), or the platform's.

    It is None if there is no variable, no key and no home folder.
    """
    home = _home(environ)
    if environ.get("TIDEMARK_DATA_DIR"):
        return _absolute(Path(environ["TIDEMARK_DATA_DIR"]), Path.cwd(), home)
    if configured is not None:
        return _absolute(configured, file.absolute().parent if file else Path.cwd(), home)
    xdg = Path(environ.get("XDG_DATA_HOME", ""))
    if xdg.is_absolute():  # XDG Base Directory Specification: a relative path must be ignored
        return xdg / "tidemark"
    if home is None:
        return None
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/share") / "tidemark"


def _read_variable(reader: Reader, environ: Mapping[str, str], name: str, kind: Kind) -> Address | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        read: Address = kind.read(Scalar(resolve(text), text, 0, variable=name))
    except Unfit:
        reader.problem(0, f"{name} does not fit; it takes {kind.wanted}")
        return None
    return read


def _secret(environ: Mapping[str, str], name: str) -> Secret | None:
    return Secret(environ[name]) if environ.get(name) else None


def _home(environ: Mapping[str, str]) -> Path | None:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:  # a container may run under a user id that has no entry in passwd
        return None


def _absolute(path: Path, base: Path, home: Path | None) -> Path:
    if path.parts[:1] == ("~",) and home is not None:
        path = home.joinpath(*path.parts[1:])
    return (base / path).absolute()
