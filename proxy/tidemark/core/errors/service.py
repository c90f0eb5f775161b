"""Errors that are not the client's: of Tidemark itself, of its store, and of providers and the connections to them."""

from __future__ import annotations

from tidemark.core.errors.base import RetryableError, TidemarkError


class ServiceError(TidemarkError):
    """Tidemark itself cannot do what it promised."""


class ConfigError(ServiceError):
    """The configuration cannot be used; the message names file, line and the nearest valid key."""

    code = "config_error"


class ServerBusy(RetryableError, ServiceError):
    """Tidemark has no memory or connection free for the request at this moment."""

    code = "server_busy"


class Overloaded(ServerBusy):
    """The worker answers as many requests as ``limits`` allows. The request was refused before its body was read."""

    code = "overloaded"


class KeysUnread(ServerBusy):
    """The store has not answered since this worker started, so nobody knows which keys are valid."""

    def __init__(self) -> None:
        super().__init__("The keys of clients cannot be read at present. Send the request again.", retry_after=1.0)


class TokenizerFailed(ServiceError):
    """Counting failed (FR-5.2.1). Nothing is approximated, and the client may send the request again."""

    code = "token_counting_failed"


class CompactionFailed(RetryableError, ServiceError):
    """No summary could be made and ``on_failure`` is ``block`` (FR-5.1.1)."""

    code = "compaction_failed"


class SummaryRejected(ServiceError):
    """A summarizer returned something that is no summary: empty, refused, too long, echoing."""

    code = "summary_rejected"


class SummaryOverdue(ServiceError):
    """Reading a conversation for its summary took too long."""

    code = "summary_overdue"


class SummaryOutdated(ServiceError):
    """A person replaced the summary that a new one was made upon, or deleted the conversation.

    The new one is not stored; no client gets this.
    """

    def __init__(self) -> None:
        super().__init__(
            "the conversation was deleted meanwhile, or the summary that this one was made upon was replaced"
        )


class FlushNotTaken(RetryableError, ServiceError):
    """A consumer did not take a queue entry. The courier offers it again, and no client gets this error."""


class FlushRefused(FlushNotTaken):
    """A consumer gave an answer that the protocol does not allow, so no further offer can succeed."""


class StoreError(TidemarkError):
    """The conversation store is at fault."""


class StoreUnavailable(StoreError):
    """The store did not answer in time; requests are served without it."""

    code = "store_unavailable"
    retry_after = 1.0
    """A store that failed is asked twice a second whether it is back (``store/connection/node.py``)."""


class StoreRefuses(StoreUnavailable):
    """The store answers and takes no writes: its disk or memory is full, or it is a read-only replica."""

    retry_after = 0.0


class SchemaUnknown(StoreRefuses):
    """A newer version of Tidemark wrote the store. This one would damage it; the message says the mend."""

    code = "store_schema_unknown"


class EncryptionKeyLost(StoreUnavailable):
    """The key of a tenant, or of everything, cannot be had. What is stored under it stays as it is."""

    code = "encryption_key_lost"
    retry_after = 0.0


class RecordUnreadable(StoreError):
    """One record is broken or of a newer version. The store works, and all other records can be read."""

    code = "unreadable_record"


class TurnNotStored(StoreError):
    """The model replied, but the turn of a stored history was not stored, so the next request would lack it."""

    code = "turn_not_stored"


class StoreDamaged(StoreUnavailable):
    """Files of the embedded store are damaged, and this command does not mend them."""


class StoreInUse(StoreError):
    """Another process runs on the same data folder."""

    code = "store_in_use"


class RedactionFailed(StoreError):
    """What was to be stored could not be redacted, so it is not stored; requests are served all the same."""

    code = "redaction_failed"


class StoreFull(StoreError):
    """The store takes nothing more from one credential, or from any; the message names the setting."""

    code = "store_full"


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
