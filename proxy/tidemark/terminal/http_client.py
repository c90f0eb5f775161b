"""Asks a running server over HTTP, for ``tidemark conversations``, ``top`` and ``wrap``.

It uses the standard library's client, because loading a larger one takes longer than the request.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import click

from tidemark.core.errors import TidemarkError
from tidemark.core.hosts import is_loopback
from tidemark.terminal.options import config_option
from tidemark.terminal.run_file import read

F = TypeVar("F", bound=Callable[..., Any])
TIMEOUT_SECONDS = 60.0
ASK_SECONDS = 5.0
"""For small pages, which a server that runs answers at once."""
PIECE_BYTES = 65_536
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
URL_EXAMPLE = "--url must be something like http://127.0.0.1:8787."

url_option = click.option("--url", show_default="the configuration's", help="Tidemark's address.")
_operator = click.option("--operator", is_flag=True, help="Ask with TIDEMARK_ADMIN_TOKEN in place of OPENAI_API_KEY.")


class ServerRefusal(TidemarkError):
    """The server refused the request, or its answer could not be used."""


def server_options(command: F) -> F:
    """Add the options that choose the server and the credential."""
    for option in (config_option, url_option, _operator):
        command = option(command)
    return command


def connect(url: str, timeout_seconds: float, context: ssl.SSLContext | None = None) -> tuple[HTTPConnection, str]:
    """Return a connection that is not opened yet, and the path that all requests begin with.

    :param context: trusts the server; None for the authorities of this machine, or of ``SSL_CERT_FILE``
    :raises click.UsageError: the address is no URL of a server
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise click.UsageError(URL_EXAMPLE) from None
    if not host or parts.scheme not in ("http", "https"):
        raise click.UsageError(URL_EXAMPLE)
    if parts.scheme == "http":
        return HTTPConnection(host, port, timeout=timeout_seconds), parts.path.rstrip("/")
    return HTTPSConnection(host, port, timeout=timeout_seconds, context=context), parts.path.rstrip("/")


def page(url: str, path: str) -> str | None:
    """Return a page that needs no credential; None if nobody answers with 200."""
    try:
        connection, prefix = connect(url, ASK_SECONDS, _unasked() if _is_local(url) else None)
    except click.UsageError:
        return None
    try:
        connection.request("GET", prefix + path)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
    except (OSError, HTTPException, UnicodeError):
        return None
    else:
        return text if answer.status == 200 else None
    finally:
        connection.close()


def running_url(folder: Path) -> str | None:
    """Return the address that the data folder's run file names; None if nobody answers there."""
    running = read(folder)
    return running.url if running is not None and page(running.url, "/health/liveliness") is not None else None


def request(
    server: Mapping[str, Any],
    method: str,
    path: str,
    body: bytes | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[bytes]:
    """Yield the server's answer in pieces.

    :param server: ``url``, ``config`` and ``operator``; with ``headers``, these are the credential
    :param advance: takes the size of each piece of the body that was sent
    :raises ServerRefusal: the server refuses the request, or does not answer whole
    """
    url = server["url"] or configured_url(server["config"])
    connection, prefix = connect(url, TIMEOUT_SECONDS, own_certificate(url, server["config"]))
    where = urlsplit(url).netloc
    answer = None
    try:
        length = {} if body is None else {"content-length": str(len(body))}
        pieces = None if body is None else _pieces(body, advance)
        credential = server["headers"] if "headers" in server else headers(operator=server["operator"])
        connection.request(method, prefix + path, pieces, {**credential, **length})
        answer = connection.getresponse()
        if answer.status >= 400:
            _refuse(answer)
        while piece := answer.read(PIECE_BYTES):
            yield piece
        if answer.length:  # http.client reports a missing end for chunked answers only
            raise IncompleteRead(b"", answer.length)
    except (OSError, HTTPException) as error:
        if answer is not None:
            raise ServerRefusal(f"The answer of Tidemark at {where} broke off: {error}. Try again.") from error
        raise ServerRefusal(
            f"Tidemark does not answer at {where}: {error}. Is it running?{_certificate_hint(url)}"
        ) from error
    finally:
        connection.close()


def _is_local(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _unasked() -> ssl.SSLContext:
    """Return a context for a server of this machine that gets no credential: whoever it is may see the question."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def own_certificate(url: str, config: Path | None) -> ssl.SSLContext | None:
    """Return a context that trusts the configured server's own certificate and no other.

    The certificate need not name 127.0.0.1, at which the command asks. Where clients need one, the command shows the
    server's. It is None for another machine's server, and for one without TLS.
    """
    from tidemark.config import load

    if not (url.startswith("https:") and _is_local(url)):
        return None
    files = load(config, os.environ).server.tls
    if files.cert is None:
        return None
    context = ssl.create_default_context(cadata=_first_certificate(files.cert))
    if files.client_ca is not None:
        with suppress(OSError, ValueError):  # the key may be the server's user's alone
            context.load_cert_chain(files.cert, files.key)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def _certificate_hint(url: str) -> str:
    """Return what else may be wrong with a server of this machine that has TLS."""
    if not (url.startswith("https:") and _is_local(url)):
        return ""
    return (
        " If clients need a certificate, commands show the server's own: server.tls.client_ca must have its authority, "
        "and whoever runs the command must be able to read server.tls.key."
    )


def _first_certificate(file: Path) -> str:
    """Return the server's own certificate, without those that lead to its authority.

    :raises ServerRefusal: there is none
    """
    try:
        text = file.read_text("utf-8")
        return text[text.index(_BEGIN) : text.index(_END) + len(_END)] + "\n"
    except (OSError, ValueError) as error:
        raise ServerRefusal(f"{file} has no certificate of the server: {error}") from error


def _pieces(body: bytes, advance: Callable[[int], None]) -> Iterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        piece = body[start : start + PIECE_BYTES]
        yield piece
        advance(len(piece))


def headers(*, operator: bool | None) -> Mapping[str, str]:
    """Return the headers with the credential of the environment: the operator's, or a client's key; None for none."""
    if operator is None:
        return {}
    variable = "TIDEMARK_ADMIN_TOKEN" if operator else "OPENAI_API_KEY"
    key = os.environ.get(variable)
    if operator and not key:
        raise click.UsageError("TIDEMARK_ADMIN_TOKEN is not set.")
    return {"authorization": f"Bearer {key}"} if key else {}


def _refuse(answer: HTTPResponse) -> NoReturn:
    try:
        message = json.loads(answer.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"the server answered with status {answer.status}"
    raise ServerRefusal(str(message))


def server_url(config: Path | None) -> str:
    """Return the address of the server that the data folder's run file names, else the configuration's."""
    from tidemark.config import load

    return running_url(load(config, os.environ).data_dir) or configured_url(config)


def configured_url(config: Path | None) -> str:
    """Return the URL of Tidemark by the configuration."""
    from tidemark.config import load

    server = load(config, os.environ).server
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - the client connects to it, and binds nothing
    scheme = "http" if server.tls.cert is None else "https"
    return f"{scheme}://[{host}]:{server.port}" if ":" in host else f"{scheme}://{host}:{server.port}"
