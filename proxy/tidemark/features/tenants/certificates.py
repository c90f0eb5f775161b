"""Certificates of erasure: what was erased, when, how much, signed so that anybody can check it later.

``erasure.py`` makes one, and ``tidemark tenants verify`` checks it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from tidemark.codings.sealing import Signer, is_signed
from tidemark.core.errors import InvalidRequest

PURPOSE = b"tidemark certificate of erasure 1"
_SIGNATURE = "signature"
_NONE = "This is no certificate of tidemark tenants forget."


def signed(fields: Mapping[str, Any], secret: bytes) -> dict[str, Any]:
    """Return a certificate with these fields.

    :param secret: ``TIDEMARK_SECRET``, of which the key is made
    """
    signer = Signer(secret, PURPOSE)
    certificate = {**fields, "public_key": base64.b64encode(signer.public_key).decode()}
    return {**certificate, _SIGNATURE: base64.b64encode(signer.sign(_content(certificate))).decode()}


def is_whole(certificate: Mapping[str, Any]) -> bool:
    """Tell whether a certificate is as it was signed by the key that it names.

    :raises InvalidRequest: it is no certificate
    """
    try:
        key, signature = (base64.b64decode(certificate[name], validate=True) for name in ("public_key", _SIGNATURE))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest(_NONE) from error
    rest = {name: value for name, value in certificate.items() if name != _SIGNATURE}
    return is_signed(key, signature, _content(rest))


def is_own(certificate: Mapping[str, Any], secret: bytes) -> bool:
    """Tell whether this installation's key is the one that a certificate names."""
    return certificate.get("public_key") == base64.b64encode(Signer(secret, PURPOSE).public_key).decode()


def read_certificate(text: bytes) -> Mapping[str, Any]:
    """Return the certificate of a file.

    :raises InvalidRequest: it is none
    """
    try:
        certificate = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(_NONE) from error
    if not isinstance(certificate, dict):
        raise InvalidRequest(_NONE)
    return certificate


def _content(certificate: Mapping[str, Any]) -> bytes:
    return json.dumps(certificate, sort_keys=True, separators=(",", ":")).encode()
