"""Seals summaries that a client carries, with AES-256-GCM and a key for each tenant.

``POST /v1/responses/compact`` gives its client a summary as an item that only Tidemark can read. The next request
brings it back, and the step ``continue`` opens it (``pipeline/continuing.py``).
"""

from __future__ import annotations

import base64
import hmac

from tidemark.codings.sealing import Box, SealBroken
from tidemark.core.errors import InvalidRequest

PREFIX = "tidemark1."
"""Begins what Tidemark has sealed; the number is the version of the format."""
_PURPOSE = b"tidemark sealed summary 1"


class TenantSeal:
    """Seals summaries that a client carries, so that only Tidemark reads them, and only for the same tenant.

    The keys are made of the server's secret and the tenant. It holds the secret and no other state. Workers with the
    same secret open what any of them has sealed.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, tenant: str, text: str) -> str:
        """Return the sealed text; a random nonce makes equal texts differ."""
        sealed = self._box(tenant).seal(text.encode("utf-8", "replace"), _PURPOSE)
        return PREFIX + base64.urlsafe_b64encode(sealed).decode()

    def open(self, tenant: str, sealed: str) -> str | None:
        """Return the text of what ``seal`` returned; None for what a provider has sealed.

        :raises InvalidRequest: it is another tenant's, or was changed since
        """
        if not sealed.startswith(PREFIX):
            return None
        try:
            data = base64.b64decode(sealed.removeprefix(PREFIX), altchars=b"-_", validate=True)
            return self._box(tenant).open(data, _PURPOSE).decode()
        except (SealBroken, ValueError) as error:
            raise InvalidRequest(
                "The encrypted content cannot be opened: it was made for another credential or upstream, with another "
                "TIDEMARK_SECRET, or was changed since. Send the conversation itself in its place.",
                code="invalid_encrypted_content",
            ) from error

    def _box(self, tenant: str) -> Box:
        return Box(hmac.digest(self._secret, _PURPOSE + b"\0" + tenant.encode(), "sha256"))

    def __repr__(self) -> str:
        return "TenantSeal(secret=***)"
