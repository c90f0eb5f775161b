"""The base of the error tree."""

from __future__ import annotations


class TidemarkError(Exception):
    """Base of every error that Tidemark raises on purpose.

    ``code`` is the stable machine-readable name in OpenAI's error envelope.
    """

    code: str = "internal_error"
    retry_after: float = 0.0
    """Seconds after which a retry can succeed; 0 if nobody can tell."""

    def __init__(self, message: str, *, internal: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.internal = internal


class RetryableError(TidemarkError):
    """Base of the errors that can say after how many seconds a retry can succeed."""

    def __init__(self, message: str, *, internal: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, internal=internal)
        self.retry_after = retry_after
