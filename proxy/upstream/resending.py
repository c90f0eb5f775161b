"""Takes litellm's hidden second sending of a request off its HTTP handler.

Beside the translate lane, applied once when litellm is imported. litellm 1.105.3 sends a POST again, over a new
connection and without a time limit, whenever the server closes without an answer
(``llms/custom_httpx/http_handler.py``). The server may have worked on it by then, and what it did is billed
(RFC 9110, 9.2.2). Of a stream that second answer could not even be read: litellm closes its connection.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

RESENDING = "single_connection_post_request"
"""litellm's method; its handlers call it while they handle the first sending's error."""


def send_once(handler: type) -> None:
    """Make a handler class of litellm raise the first error in place of sending a second time.

    :raises AttributeError: this litellm sends again by another method, if at all
    """
    getattr(handler, RESENDING)  # a new litellm may have renamed it: that must not pass unseen

    async def raise_first_error(_handler: Any, *_: Any, **__: Any) -> NoReturn:
        raise sys.exc_info()[1] or ConnectionError("litellm sends a request again for no error")

    setattr(handler, RESENDING, raise_first_error)
