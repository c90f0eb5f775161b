"""Refuses the tokens of operators and auditors where clients send keys, so that no provider ever gets one.

Authenticators ask it for credentials that they do not know yet, and the dispatcher for queries.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from tidemark.core.errors import InvalidApiKey

_OWN = (
    "This is Tidemark's own token, for its operator or an auditor, and no key for models. It was sent to nobody. Send "
    "{mend} in its place."
)
PROVIDERS_KEY = "the provider's API key"
_SPLIT_QUERY = re.compile(b"[&;=]")
_BASIC = b"basic "


class OwnTokens:
    """The tokens, as digests.

    :param tokens: those that are configured
    :param mend: what a client sends in their place
    """

    def __init__(self, tokens: Iterable[str | None] = (), mend: str = PROVIDERS_KEY) -> None:
        self._digests = [_digest(token.encode()) for token in tokens if token]
        self._mend = mend

    def refuse(self, values: Iterable[bytes]) -> None:
        """Refuse the values of headers if one is a token: alone, behind its scheme, or as a name or password.

        :raises InvalidApiKey: one is
        """
        if self._digests:
            self._compare(part for value in values for part in _parts(value))

    def refuse_in_query(self, query: bytes) -> None:
        """Refuse a query that has a token as a parameter.

        :raises InvalidApiKey: it has
        """
        if self._digests:
            self._compare(unquote_to_bytes(part) for part in _SPLIT_QUERY.split(query))

    def _compare(self, parts: Iterable[bytes]) -> None:
        """Compare each part with each token, in a time that depends on neither's letters."""
        digests = [_digest(part.strip()) for part in parts]
        if sum(hmac.compare_digest(digest, own) for digest in digests for own in self._digests):
            raise InvalidApiKey(_OWN.format(mend=self._mend))

    def __repr__(self) -> str:
        return f"OwnTokens({len(self._digests)} tokens)"


def _parts(value: bytes) -> Iterable[bytes]:
    yield value
    yield value.partition(b" ")[2]
    if value[: len(_BASIC)].lower() == _BASIC:
        try:
            yield from binascii.a2b_base64(value[len(_BASIC) :]).split(b":", 1)
        except ValueError:
            return


def _digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()
