"""Errors of requests that cannot be served as they are."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.errors.base import TidemarkError


class ClientError(TidemarkError):
    """The request cannot be served as it is."""

    code = "invalid_request_error"


class InvalidRequest(ClientError):
    """A field is missing, of the wrong type or of an unknown value. ``param`` is its path, as OpenAI writes it."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class EarlierResponseUnknown(InvalidRequest):
    """Nobody has the response that the request goes on from; the message says how to go on without it."""

    def __init__(self, response: str) -> None:
        super().__init__(
            f"Previous response with id {response[:120]!r} not found: it is unknown here, or has expired. Send the "
            "whole conversation as 'input' and leave out 'previous_response_id'; then continue from the answer's id.",
            param="previous_response_id",
            code="previous_response_not_found",
        )


class EarlierResponseUnreachable(EarlierResponseUnknown):
    """The response is at the upstream, in an account that tenants share, and is not this caller's."""


class ObjectNotFound(InvalidRequest):
    """What the request names is another tenant's, or was not made through Tidemark; the answer does not say which.

    :param is_open: whether everybody may reach what Tidemark did not see made (``auth.shared_account``)
    """

    def __init__(self, name: str, *, is_open: bool, param: str | None = None) -> None:
        mend = (
            ""
            if is_open
            else " What was not made through Tidemark, and lists of the provider's account, are served where "
            "auth.shared_account is true."
        )
        super().__init__(
            f"Not found: {name[:120]!r}. It does not exist, or was not made by this key.{mend}",
            param=param,
            code="not_found",
        )


class EarlierResponseElsewhere(InvalidRequest):
    """The response is stored, but the beginning of its conversation is at an upstream that cannot give it."""

    def __init__(self, response: str) -> None:
        super().__init__(
            f"Previous response with id {response[:120]!r} cannot be continued here: its conversation began at the "
            "upstream (in a 'conversation', or before Tidemark), and this model's upstream keeps none. Send the whole "
            "conversation as 'input' and leave out 'previous_response_id'.",
            param="previous_response_id",
            code="previous_response_not_found",
        )


class ItemNotFound(InvalidRequest):
    """The request refers to an item that is not stored for this caller; the message names it."""

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message, param=param, code="item_not_found")


class ResponseNotFound(ClientError):
    """The response is not stored, or is another caller's; the answer does not say which (promise 8)."""

    code = "response_not_found"


class BodyTooLarge(ClientError):
    """The body is longer than ``server.max_body_mb``."""

    code = "request_too_large"


class UnsupportedEncoding(ClientError):
    """The body has a content coding that Tidemark cannot decode; the message names those that it can."""

    code = "unsupported_encoding"


class InvalidHttp(ClientError):
    """The bytes of a connection are no HTTP request that can be read. The connection is closed after the error."""

    code = "invalid_http_request"


class VersionUnknown(InvalidHttp):
    """The request is of another version of HTTP."""

    code = "http_version_not_supported"

    def __init__(self) -> None:
        super().__init__("Tidemark speaks HTTP/1.1 and HTTP/1.0.")


class CodingUnknown(InvalidHttp):
    """The body has a transfer coding other than ``chunked``."""

    code = "transfer_coding_not_supported"

    def __init__(self) -> None:
        super().__init__("Tidemark takes no Transfer-Encoding but 'chunked'.")


class HeadTooLarge(InvalidHttp):
    """The head or the trailers are longer than their bound, or have more lines."""

    code = "request_head_too_large"


class RequestTimedOut(InvalidHttp):
    """The rest of the request did not arrive in time."""

    code = "request_timeout"


class UpgradeRequired(ClientError):
    """The client offers a WebSocket, and Tidemark speaks HTTP only."""

    code = "upgrade_required"


class NotAuthenticated(ClientError):
    """The operator's token is missing or wrong."""

    code = "invalid_admin_token"


class InvalidApiKey(NotAuthenticated):
    """The key of a client is missing, unknown, revoked or expired; the answer does not say which of these."""

    code = "invalid_api_key"


class Forbidden(ClientError):
    """The action is switched off on this server; the message names what would allow it."""

    code = "admin_token_required"


class ForeignPage(Forbidden):
    """The request came from another site's web page, or under a foreign host name; the message names the setting."""

    code = "foreign_origin"


class ModelNotAllowed(Forbidden):
    """The client's key allows other models only.

    :param model: the name that the client uses; empty if a request may reach a model that nobody can tell
    """

    code = "model_not_allowed"

    def __init__(self, model: str, message: str = "") -> None:
        super().__init__(
            message
            or f"This key may not use the model {model[:200]!r}. GET /v1/models lists those that it may use; the "
            "operator can add others to the key."
        )


class KeyNotFound(ClientError):
    """There is no key of this id."""

    code = "key_not_found"


class KeyConflict(ClientError):
    """Another key has the same name, or there are too many; the message says which."""

    code = "key_conflict"


class RateLimitExceeded(ClientError):
    """A tenant or a key has used up what ``limits`` allows it for now.

    :param kind: what is used up: ``requests`` or ``tokens``
    :param retry_after: seconds until a request may succeed
    :param lines: header lines that say the limit, what is left and when it is whole again
    """

    code = "rate_limit_exceeded"

    def __init__(
        self, message: str, *, kind: str, retry_after: float, lines: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after
        self.lines = lines


class ModelNotFound(ClientError):
    """No upstream serves the model; the message names what is configured."""

    code = "model_not_found"


class ModelConflict(ClientError):
    """A model's settings were changed since the sender read them."""

    code = "model_conflict"

    def __init__(self) -> None:
        super().__init__("Somebody else changed this model meanwhile. Nothing was changed; read its settings again.")


class SettingsConflict(ClientError):
    """The settings for all models were changed since the sender read them."""

    code = "settings_conflict"

    def __init__(self) -> None:
        super().__init__("Somebody else changed the settings meanwhile. Nothing was changed; read them again.")


class NoUpstream(ClientError):
    """The request names no model, and there is no one upstream; the message names the setting."""

    code = "unknown_url"


class DialectNotServed(ClientError):
    """The model's provider does not speak the dialect of the request."""

    code = "dialect_not_served"


class ConversationNotFound(ClientError):
    """The conversation does not exist or is another tenant's; the answer does not say which (promise 8)."""

    code = "conversation_not_found"


class MessageNotFound(ClientError):
    """The conversation has no message of this handle, or it has no text."""

    code = "message_not_found"


class ConversationConflict(ClientError):
    """Another turn of the conversation is running, or the conversation has continued past this request."""

    code = "conversation_conflict"


class HistoryLost(ConversationConflict):
    """The store has fewer messages of a conversation than the client knows to be stored."""

    code = "history_lost"

    def __init__(self, expected_count: int, stored_count: int) -> None:
        super().__init__(
            f"{stored_count} messages of this conversation are stored, and X-Tidemark-History says {expected_count}. "
            "The others have expired, or the store has lost them. Send all messages without X-Tidemark-History, or "
            "what matters of them with a smaller number."
        )


class SummaryConflict(ClientError):
    """The summary has been changed since the request's sender read it."""

    code = "summary_conflict"

    def __init__(self) -> None:
        super().__init__(
            "The summary was changed meanwhile: by somebody else, or by a newer compaction. Nothing was replaced. Read "
            "the summary that is in use now, and change that one."
        )


class NoSummary(ClientError):
    """The conversation has no summary that could be changed."""

    code = "no_summary"

    def __init__(self) -> None:
        super().__init__("The conversation has no summary in use. Summarize it first.")


class PreviewNotFound(ClientError):
    """The preview of a summary has expired, or is of another conversation."""

    code = "preview_not_found"

    def __init__(self) -> None:
        super().__init__("There is no such preview: it is kept for half an hour. Make a new one.")


class BadImport(ClientError):
    """The lines are no conversation; the message names them, counted from 1."""

    code = "invalid_import"


class ImportLimit(ClientError):
    """Credentials that no upstream has accepted yet have used up their imports; the message says how to go on."""

    code = "import_limit_exceeded"


class ContextLengthExceeded(ClientError):
    """The request does not fit its budget, even compacted (FR-5.3.1); the message is OpenAI's, with the numbers.

    ``param`` names the member that is too long; None for the messages, whose member the dialect knows.
    """

    code = "context_length_exceeded"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param
