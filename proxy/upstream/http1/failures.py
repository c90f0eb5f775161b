"""How an exchange fails. All are ``OSError``; the wire lane tells the client in its own words.

- ``ConnectTimedOut``: no connection within its time; also a ``TimeoutError``
- ``ConnectionGone``: the connection ended before a byte of the answer
- ``AnswerBroken``: what came was no HTTP, too long, or not all of it
"""

from __future__ import annotations


class ConnectTimedOut(TimeoutError):
    """Name lookup, TCP and TLS took too long."""


class ConnectionGone(ConnectionError):
    """The connection ended before a byte of the answer.

    :param kept: it had carried an answer before, so the server may have closed it without seeing the request
    :param round_trip_seconds: to the server and back, as the connect took it; 0 where that is unknown
    """

    def __init__(self, message: str, *, kept: bool, round_trip_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.kept = kept
        self.round_trip_seconds = round_trip_seconds


class AnswerBroken(ConnectionError):
    """An answer that is malformed or breaks off."""
