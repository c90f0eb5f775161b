"""One tree of errors. Every package raises them; only ``server/errors.py`` gives them a status.

* ``TidemarkError``
    * ``ClientError``: the request is at fault, and the message says how to fix it (``client.py``)
        * ``InvalidRequest``
            * ``EarlierResponseElsewhere``
            * ``EarlierResponseUnknown``
                * ``EarlierResponseUnreachable``
            * ``ItemNotFound``
            * ``ObjectNotFound``
        * ``ResponseNotFound``
        * ``BodyTooLarge``
        * ``UnsupportedEncoding``
        * ``InvalidHttp``
            * ``VersionUnknown``
            * ``CodingUnknown``
            * ``HeadTooLarge``
            * ``RequestTimedOut``
        * ``UpgradeRequired``
        * ``NotAuthenticated``
            * ``InvalidApiKey``
        * ``Forbidden``
            * ``ForeignPage``
            * ``ModelNotAllowed``
        * ``KeyNotFound``
        * ``KeyConflict``
        * ``RateLimitExceeded``
        * ``ModelNotFound``
        * ``ModelConflict``
        * ``SettingsConflict``
        * ``NoUpstream``
        * ``DialectNotServed``
        * ``ConversationNotFound``
        * ``ConversationConflict``
            * ``HistoryLost``
        * ``SummaryConflict``
        * ``NoSummary``
        * ``PreviewNotFound``
        * ``MessageNotFound``
        * ``BadImport``
        * ``ImportLimit``
        * ``ContextLengthExceeded``
    * ``ServiceError``: Tidemark is at fault (``service.py``, like those below)
        * ``ConfigError``
        * ``ServerBusy``
            * ``Overloaded``
            * ``KeysUnread``
        * ``TokenizerFailed``
        * ``CompactionFailed``
        * ``SummaryRejected``
        * ``SummaryOverdue``
        * ``SummaryOutdated``
        * ``FlushNotTaken``
            * ``FlushRefused``
    * ``StoreError``: the store is at fault
        * ``StoreUnavailable``
            * ``EncryptionKeyLost``
            * ``StoreDamaged``
            * ``StoreRefuses``
                * ``SchemaUnknown``
        * ``RecordUnreadable``
        * ``TurnNotStored``
        * ``StoreInUse``
        * ``StoreFull``
    * ``UpstreamError``: the provider, or the connection to it, is at fault
        * ``UpstreamUnreachable``
        * ``UpstreamTimedOut``
        * ``UpstreamBroken``
            * ``UpstreamStalled``

``RetryableError`` is a second base for errors that say when a retry can succeed.

A client may read ``str(error)``; ``internal`` is for the log only and may name hosts and causes. A package that uses a
library translates the library's errors, always with ``raise ... from``.
"""

from __future__ import annotations

from tidemark.core.errors.base import TidemarkError
from tidemark.core.errors.client import (
    BadImport,
    BodyTooLarge,
    ClientError,
    CodingUnknown,
    ContextLengthExceeded,
    ConversationConflict,
    ConversationNotFound,
    DialectNotServed,
    EarlierResponseElsewhere,
    EarlierResponseUnknown,
    EarlierResponseUnreachable,
    Forbidden,
    ForeignPage,
    HeadTooLarge,
    HistoryLost,
    ImportLimit,
    InvalidApiKey,
    InvalidHttp,
    InvalidRequest,
    ItemNotFound,
    KeyConflict,
    KeyNotFound,
    MessageNotFound,
    ModelConflict,
    ModelNotAllowed,
    ModelNotFound,
    NoSummary,
    NotAuthenticated,
    NoUpstream,
    ObjectNotFound,
    PreviewNotFound,
    RateLimitExceeded,
    RequestTimedOut,
    ResponseNotFound,
    SettingsConflict,
    SummaryConflict,
    UnsupportedEncoding,
    UpgradeRequired,
    VersionUnknown,
)
from tidemark.core.errors.service import (
    CompactionFailed,
    ConfigError,
    EncryptionKeyLost,
    FlushNotTaken,
    FlushRefused,
    KeysUnread,
    Overloaded,
    RecordUnreadable,
    RedactionFailed,
    SchemaUnknown,
    ServerBusy,
    ServiceError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreRefuses,
    StoreUnavailable,
    SummaryOutdated,
    SummaryOverdue,
    SummaryRejected,
    TokenizerFailed,
    TurnNotStored,
    UpstreamBroken,
    UpstreamError,
    UpstreamStalled,
    UpstreamTimedOut,
    UpstreamUnreachable,
)
