"""Errors of providers, and of the connections to them."""

from __future__ import annotations

from tidemark.core.errors.base import TidemarkError


class UpstreamError(TidemarkError):
    """The provider could not be reached or broke its protocol."""

    code = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection to the upstream could be made.

    :param mend: the part of the message that says what to do about it, without a full stop
    """

    code = "upstream_unreachable"

    def __init__(self, message: str, *, internal: str = "", mend: str = "") -> None:
        super().__init__(message, internal=internal)
        self.mend = mend

    @property
    def fault(self) -> str:
        """Return the message without the mend."""
        return self.message.removesuffix(f"; {self.mend}.")


class UpstreamTimedOut(UpstreamError):
    """The upstream did not answer within its time."""

    code = "upstream_timeout"


class UpstreamBroken(UpstreamError):
    """The reply stopped before it was complete."""

    code = "upstream_incomplete"


class UpstreamStalled(UpstreamBroken):
    """The reply had begun, and no more of it arrived within the time."""

    code = UpstreamTimedOut.code
