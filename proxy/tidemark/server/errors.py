"""Gives each error of Tidemark its HTTP status and header lines; a dialect writes its body."""

from __future__ import annotations

import math
from http import HTTPStatus

from tidemark.core import errors

ENCODINGS = ("gzip", "deflate", "br", "zstd")
"""Codings that a request's body may have (``server/encodings.py``)."""
STATUS: dict[type[errors.TidemarkError], HTTPStatus] = {
    errors.InvalidRequest: HTTPStatus.BAD_REQUEST,
    errors.ItemNotFound: HTTPStatus.NOT_FOUND,
    errors.EarlierResponseUnreachable: HTTPStatus.NOT_FOUND,
    errors.ObjectNotFound: HTTPStatus.NOT_FOUND,
    errors.ResponseNotFound: HTTPStatus.NOT_FOUND,
    errors.ContextLengthExceeded: HTTPStatus.BAD_REQUEST,
    errors.ClientError: HTTPStatus.BAD_REQUEST,
    errors.NotAuthenticated: HTTPStatus.UNAUTHORIZED,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.ModelNotFound: HTTPStatus.NOT_FOUND,
    errors.KeyNotFound: HTTPStatus.NOT_FOUND,
    errors.KeyConflict: HTTPStatus.CONFLICT,
    errors.RateLimitExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    errors.ModelConflict: HTTPStatus.CONFLICT,
    errors.SettingsConflict: HTTPStatus.CONFLICT,
    errors.NoUpstream: HTTPStatus.NOT_FOUND,
    errors.ConversationNotFound: HTTPStatus.NOT_FOUND,
    errors.MessageNotFound: HTTPStatus.NOT_FOUND,
    errors.ConversationConflict: HTTPStatus.CONFLICT,
    errors.SummaryConflict: HTTPStatus.CONFLICT,
    errors.NoSummary: HTTPStatus.CONFLICT,
    errors.PreviewNotFound: HTTPStatus.NOT_FOUND,
    errors.BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.UnsupportedEncoding: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.UpgradeRequired: HTTPStatus.UPGRADE_REQUIRED,
    errors.VersionUnknown: HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
    errors.CodingUnknown: HTTPStatus.NOT_IMPLEMENTED,
    errors.HeadTooLarge: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    errors.RequestTimedOut: HTTPStatus.REQUEST_TIMEOUT,
    errors.ServerBusy: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.CompactionFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.TokenizerFailed: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ImportLimit: HTTPStatus.TOO_MANY_REQUESTS,
    errors.StoreFull: HTTPStatus.INSUFFICIENT_STORAGE,
    errors.StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.UpstreamTimedOut: HTTPStatus.GATEWAY_TIMEOUT,
    errors.UpstreamStalled: HTTPStatus.GATEWAY_TIMEOUT,
    errors.UpstreamError: HTTPStatus.BAD_GATEWAY,
    errors.SummaryRejected: HTTPStatus.BAD_GATEWAY,
    errors.TidemarkError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""The status of each error class. The nearest ancestor counts, so a new subclass needs no line here."""


def status_of(error: errors.TidemarkError) -> int:
    """Return the HTTP status of an error."""
    return int(next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS))


def error_lines(error: errors.TidemarkError) -> list[tuple[bytes, bytes]]:
    """Return the header lines of an error's response, without its content type."""
    lines = []
    if error.retry_after:
        lines.append((b"retry-after", b"%d" % math.ceil(error.retry_after)))
    if isinstance(error, errors.RateLimitExceeded):
        lines += error.lines
    if isinstance(error, errors.NotAuthenticated):
        lines.append((b"www-authenticate", b"Bearer"))  # RFC 9110, section 15.5.2: a 401 names the scheme
    if isinstance(error, errors.UnsupportedEncoding):
        lines.append((b"accept-encoding", ", ".join(ENCODINGS).encode()))  # RFC 9110, section 15.5.16
    if isinstance(error, errors.UpgradeRequired):  # RFC 9110, sections 15.5.22 and 7.8
        lines += [(b"upgrade", b"HTTP/1.1"), (b"connection", b"upgrade")]
    return lines
