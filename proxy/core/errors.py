"""One tree of errors, raised by any room and given a status only by ``server/errors.py``.

* ``TidemarkError``
    * ``ClientError``: the request is at fault, and the message names the mend
        * ``InvalidRequest``
        * ``BodyTooLarge``
        * ``UnsupportedEncoding``
        * ``InvalidHttp``
            * ``VersionUnknown``
            * ``CodingUnknown``
            * ``HeadTooLarge``
            * ``RequestTimedOut``
        * ``NotAuthenticated``
        * ``Forbidden``
            * ``ForeignPage``
        * ``ModelNotFound``
        * ``DialectNotServed``
        * ``ConversationNotFound``
        * ``ConversationConflict``
        * ``BadImport``
        * ``ImportLimit``
        * ``ContextLengthExceeded``
    * ``ServiceError``: we are at fault
        * ``ConfigError``
        * ``ServerBusy``
        * ``TokenizerFailed``
        * ``CompactionFailed``
        * ``SummaryRejected``
        * ``SummaryOverdue``
        * ``FlushNotTaken``
            * ``FlushRefused``
    * ``StoreError``
        * ``StoreUnavailable``
            * ``StoreRefuses``
        * ``RecordUnreadable``
        * ``TurnNotStored``
        * ``StoreInUse``
        * ``StoreFull``
    * ``UpstreamError``: the provider, or the way to it, is at fault
        * ``UpstreamUnreachable``
        * ``UpstreamTimedOut``
        * ``UpstreamBroken``
            * ``UpstreamStalled``

``str(error)`` is what a client may read; ``internal`` is for the log only and may name hosts and causes.
Errors of libraries are translated where the library is used, always with ``raise ... from``.
"""

from __future__ import annotations


class TidemarkError(Exception):
    """Base of every error that Tidemark raises on purpose.

    ``code`` is the stable machine-readable name in OpenAI's error envelope.
    """

    code: str = "internal_error"
    retry_after: float = 0.0
    """Seconds after which it is of use to try again, where that is known; 0 where it is not."""

    def __init__(self, message: str, *, internal: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.internal = internal


class ClientError(TidemarkError):
    """The request cannot be served as it stands."""

    code = "invalid_request_error"


class InvalidRequest(ClientError):
    """A field is missing, of the wrong type or of an unknown value; ``param`` is its path, as OpenAI writes it."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class BodyTooLarge(ClientError):
    """The body is longer than ``server.max_body_mb``."""

    code = "request_too_large"


class UnsupportedEncoding(ClientError):
    """The body has a content coding that nobody here can undo; the message names those that can be."""

    code = "unsupported_encoding"


class InvalidHttp(ClientError):
    """What came over the connection is no request that can be read; the connection is closed after it."""

    code = "invalid_http_request"


class VersionUnknown(InvalidHttp):
    """The request is of another version of HTTP."""

    code = "http_version_not_supported"

    def __init__(self) -> None:
        super().__init__("Tidemark speaks HTTP/1.1 and HTTP/1.0.")


class CodingUnknown(InvalidHttp):
    """The body is sent in a transfer coding other than ``chunked``."""

    code = "transfer_coding_not_supported"

    def __init__(self) -> None:
        super().__init__("Tidemark takes no Transfer-Encoding but 'chunked'.")


class HeadTooLarge(InvalidHttp):
    """Head or trailers are longer than the bound, or have more lines."""

    code = "request_head_too_large"


class RequestTimedOut(InvalidHttp):
    """The rest of the request did not come in time."""

    code = "request_timeout"


class NotAuthenticated(ClientError):
    """The operator's token is missing or another one."""

    code = "invalid_admin_token"


class Forbidden(ClientError):
    """Nobody may do this here; the message names what would allow it."""

    code = "admin_token_required"


class ForeignPage(Forbidden):
    """A web page of another site asked, or somebody by another machine's name; the message names the setting."""

    code = "foreign_origin"


class ModelNotFound(ClientError):
    """No upstream is known for the model; the message names what is configured."""

    code = "model_not_found"


class DialectNotServed(ClientError):
    """The model's provider does not speak the dialect of the request."""

    code = "dialect_not_served"


class ConversationNotFound(ClientError):
    """There is no such conversation, or it is another tenant's: which of both, nobody is told (promise 8)."""

    code = "conversation_not_found"


class ConversationConflict(ClientError):
    """Somebody else's turn is under way, or the conversation has gone on from where the request stands."""

    code = "conversation_conflict"


class BadImport(ClientError):
    """The lines are no conversation; the message names them, counted from 1."""

    code = "invalid_import"


class ImportLimit(ClientError):
    """What credentials may import before an upstream has accepted them is used up; the message names the mend."""

    code = "import_limit_exceeded"


class ContextLengthExceeded(ClientError):
    """Even compacted, the request does not fit its budget (FR-5.3.1): told in OpenAI's words, with the numbers."""

    code = "context_length_exceeded"


class ServiceError(TidemarkError):
    """Tidemark itself cannot do what it promised."""


class ConfigError(ServiceError):
    """The configuration cannot be used; the message names file, line and the nearest valid key."""

    code = "config_error"


class ServerBusy(ServiceError):
    """Tidemark has no room for the request at this moment."""

    code = "server_busy"

    def __init__(self, message: str, *, internal: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, internal=internal)
        self.retry_after = retry_after


class TokenizerFailed(ServiceError):
    """Counting failed (FR-5.2.1): nothing is approximated, the request may be sent again."""

    code = "token_counting_failed"


class CompactionFailed(ServiceError):
    """No summary could be made and ``on_failure`` is ``block`` (FR-5.1.1)."""

    code = "compaction_failed"

    def __init__(self, message: str, *, internal: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, internal=internal)
        self.retry_after = retry_after


class SummaryRejected(ServiceError):
    """A summarizer answered with something that is no summary: empty, refused, too long, echoing."""

    code = "summary_rejected"


class SummaryOverdue(ServiceError):
    """A conversation took too long to be read for a summary."""

    code = "summary_overdue"


class FlushNotTaken(ServiceError):
    """A consumer did not take what left the context; it is offered again. No client is ever told."""

    def __init__(self, message: str, *, internal: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, internal=internal)
        self.retry_after = retry_after


class FlushRefused(FlushNotTaken):
    """A consumer answered what it may not answer; to offer it again would be no use."""


class StoreError(TidemarkError):
    """The conversation store is at fault."""


class StoreUnavailable(StoreError):
    """The store did not answer in time; requests go on without it."""

    code = "store_unavailable"


class StoreRefuses(StoreUnavailable):
    """The store answers and takes no writes: its disk or memory is full, or it is a read-only replica."""


class RecordUnreadable(StoreError):
    """One record is broken, or of a newer version; the store is well, and all other records can be read."""

    code = "unreadable_record"


class TurnNotStored(StoreError):
    """The model answered, and the turn of a stored history could not be kept: the next request would lack it."""

    code = "turn_not_stored"


class StoreInUse(StoreError):
    """Another process runs on the same data folder."""

    code = "store_in_use"


class StoreFull(StoreError):
    """Nothing more is stored for one credential, or for anybody; the message names the setting."""

    code = "store_full"


class UpstreamError(TidemarkError):
    """The provider could not be reached or did not keep its side of the protocol."""

    code = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection to the upstream could be made."""

    code = "upstream_unreachable"


class UpstreamTimedOut(UpstreamError):
    """The upstream did not answer within its time."""

    code = "upstream_timeout"


class UpstreamBroken(UpstreamError):
    """The answer stopped before it was complete."""

    code = "upstream_incomplete"


class UpstreamStalled(UpstreamBroken):
    """The answer had begun, and nothing more of it came within the time."""

    code = UpstreamTimedOut.code
