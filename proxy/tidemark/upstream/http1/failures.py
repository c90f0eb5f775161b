"""The ways in which an exchange fails. All are ``OSError``; the wire lane turns them into Tidemark's own errors.

- ``ConnectTimedOut``: there was no connection within its time; also a ``TimeoutError``
- ``ConnectionGone``: the connection ended before the first byte of the answer
- ``AnswerBroken``: the answer was malformed, too long or incomplete
- ``UploadBroken``: the request's own body ended early or was too long
"""

from __future__ import annotations


class ConnectTimedOut(TimeoutError):
    """Name lookup, TCP and TLS took too long."""


class ConnectionGone(ConnectionError):
    """The connection ended before the first byte of the answer.

    :param reused: it had carried an answer before, so the server may have closed it without reading the request
    :param round_trip_seconds: to the server and back, as the connect took it; 0 if that is unknown
    """

    def __init__(self, message: str, *, reused: bool, round_trip_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.reused = reused
        self.round_trip_seconds = round_trip_seconds


class UploadBroken(ConnectionError):
    """The request's body was not of the length that its head had announced."""


class AnswerBroken(ConnectionError):
    """The answer was malformed, too long or incomplete."""
