"""Removes litellm's hidden second sending of a request from its HTTP handler.

``litellm.py`` applies it once, when litellm is imported. litellm 1.105.3 sends a POST again, over a new connection and
without a time limit, whenever the server closes without an answer (``llms/custom_httpx/http_handler.py``). The server
may already have worked on the first request and bills it (RFC 9110, 9.2.2). The second answer of a stream could not be
read anyway, because litellm closes its connection.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

RESEND_METHOD = "single_connection_post_request"
"""litellm's method that sends again; its handlers call it while they handle the first error."""


def send_once(handler: type) -> None:
    """Make a handler class of litellm raise the first error, instead of sending a second time.

    :raises AttributeError: this version of litellm has no such method
    """
    getattr(handler, RESEND_METHOD)  # fails at once where a newer litellm has renamed it

    async def raise_first_error(_handler: Any, *_: Any, **__: Any) -> NoReturn:
        raise sys.exc_info()[1] or ConnectionError("litellm sends a request again for no error")

    setattr(handler, RESEND_METHOD, raise_first_error)
