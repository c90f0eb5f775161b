"""Reads the operator's token where LiteLLM's proxy has it, and looks for missing and for exposed credentials.

``loading.py`` asks it. With ``auth.mode: keys`` no client sends a credential that an upstream knows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from tidemark.config.environment import warn_of_short
from tidemark.config.masking import Secret
from tidemark.config.models import ModelEntry
from tidemark.config.reader import REFERENCE, Reader
from tidemark.config.settings import Secrets, Settings
from tidemark.config.tree import Scalar, Table
from tidemark.core.hosts import is_loopback

GENERAL, MASTER_KEY = "general_settings", "master_key"
"""The section and the key of LiteLLM's proxy that hold the operator's token."""
OPEN_DOOR = (
    "master_key is the admin token here; it locks the console and the operator's paths only. Without auth.mode: keys "
    "Tidemark asks no client for a key, so whoever reaches the port can use the keys of model_list"
)
KEY_UNSET = (
    "master_key would be the admin token, but the environment variable {name} is not set: there is no admin token"
)
NO_UPSTREAM = (
    "auth.mode: keys needs upstreams with configured credentials, since no client sends one: list models in "
    "model_list, or set upstream"
)
NO_KEY = (
    '"{name}" has no api_key in litellm_params, and with auth.mode: keys no client sends one: its requests go without '
    "a credential"
)
CREDENTIAL_ENDS = ("key", "token", "secret", "password", "credential", "credentials")
"""Endings of names in ``litellm_params`` that hold a credential: ``api_key``, ``aws_secret_access_key`` and others."""
_BY_ENVIRONMENT = ("bedrock/", "sagemaker/", "vertex_ai/")
"""Providers whose credentials are those of the machine."""


def with_master_key(reader: Reader, root: Table, secrets: Secrets, environ: Mapping[str, str]) -> Secrets:
    """Return the secrets with LiteLLM's ``master_key`` as the admin token, if no variable states another one.

    :param root: the file, whose section stays for others to warn of
    """
    section = root.nodes.get(GENERAL)
    node = section.nodes.get(MASTER_KEY) if isinstance(section, Table) else None
    if secrets.admin_token is not None or not isinstance(node, Scalar) or not isinstance(node.value, str | int):
        return secrets
    text = node.text
    if text.startswith(REFERENCE):
        name = text.removeprefix(REFERENCE).strip()
        text = environ.get(name, "")
        if not text:
            reader.warn(node.line, KEY_UNSET.format(name=name))
            return secrets
    warn_of_short(reader, node.line, MASTER_KEY, text)
    return dataclasses.replace(secrets, admin_token=Secret(text)) if text else secrets


def check_credentials(reader: Reader, line: int, entries: Collection[ModelEntry], *, has_upstream: bool) -> None:
    """Note upstreams that would be asked without a credential, if clients have keys of Tidemark's own.

    :param line: of the section ``auth``
    """
    if not entries and not has_upstream:
        reader.problem(line, NO_UPSTREAM)
    for entry in entries:
        if not _has_credential(entry):
            reader.warn(entry.line, NO_KEY.format(name=entry.name))


def _has_credential(entry: ModelEntry) -> bool:
    params = entry.litellm_params
    has_headers, model = bool(params.get("extra_headers")), str(params.get("model"))
    return _states_credential(entry) or has_headers or model.startswith(_BY_ENVIRONMENT)


def _states_credential(entry: ModelEntry) -> bool:
    return any(value and name.endswith(CREDENTIAL_ENDS) for name, value in entry.litellm_params.items())


def exposure_warnings(settings: Settings) -> tuple[str, ...]:
    """Return the warnings, before a port is opened, about a configured credential that other machines can use."""
    host = settings.server.host
    names = [entry.name for entry in settings.model_list if _states_credential(entry)]
    is_closed = settings.auth.mode == "keys" or settings.secrets.admin_token is not None
    if is_loopback(host) or not names or is_closed:
        return ()
    warning = (
        f"every client that reaches {host} can use {names[0]} at your expense, and read messages of callers without "
        "a key: the configuration has its credential, and Tidemark asks for none. Listen on 127.0.0.1, or put a "
        "gateway in front that authenticates clients, and set TIDEMARK_ADMIN_TOKEN"
    )
    return (warning,)
