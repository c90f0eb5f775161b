"""The command ``tidemark conversations``: it uses stored conversations over HTTP, through a running server.

``cli/main.py`` adds it to its group. It sends the environment's key as a client does, so it sees what that client sees;
with the operator's token it sees all conversations.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import click

from proxy.cli.models import config_option, json_option
from proxy.core.errors import TidemarkError

F = TypeVar("F", bound=Callable[..., Any])
PATH = "/tidemark/conversations"
TIMEOUT_SECONDS = 60.0
PIECE_BYTES = 65_536
TEXT_CHARACTERS = 100
"""The most characters of a message in a table."""

_url = click.option("--url", help="Tidemark's address; by default the configuration's.")
_operator = click.option("--operator", is_flag=True, help="Ask with TIDEMARK_ADMIN_TOKEN in place of OPENAI_API_KEY.")
_limit = click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Entries of a page.")
_cursor = click.option("--cursor", help="The beginning of the page, from the page before.")


class ServerRefusal(TidemarkError):
    """The server refused the request, or its answer could not be used."""


def _server_options(command: F) -> F:
    """Add the options that choose the server and the credential."""
    for option in (config_option, _url, _operator):
        command = option(command)
    return command


def _paging(command: F) -> F:
    return _cursor(_limit(command))


@click.group()
def conversations() -> None:
    """Look at stored conversations, search, export, import and forget them.

    ID is the value of X-Tidemark-Conversation, or the name that the client chose. A server must be running.
    """


@conversations.command("list")
@_server_options
@json_option
@_paging
def list_(as_json: bool, limit: int, cursor: str | None, **server: Any) -> None:
    """List conversations, the one used last first."""
    answer = _get(server, "", limit=limit, cursor=cursor)
    rows = [
        (
            entry["id"],
            entry["name"] or "-",
            entry["model"],
            f"{entry['messages']:,}",
            f"{entry['tokens']:,}",
            _last_use(entry),
        )
        for entry in answer["data"]
    ]
    _show(answer, ("id", "name", "model", "messages", "tokens", "last used"), rows, as_json=as_json)


@conversations.command()
@_server_options
@json_option
@_paging
@click.argument("conversation", metavar="ID")
def show(conversation: str, as_json: bool, limit: int, cursor: str | None, **server: Any) -> None:
    """Show a conversation's messages, and which of them the model still sees."""
    answer = _get(server, conversation, limit=limit, cursor=cursor)
    _show(answer, ("position", "state", "role", "text"), _messages(answer["data"]), as_json=as_json)


@conversations.command()
@_server_options
@json_option
@_paging
@click.argument("conversation", metavar="ID")
@click.argument("words", nargs=-1, required=True)
def search(
    conversation: str,
    words: tuple[str, ...],
    as_json: bool,
    limit: int,
    cursor: str | None,
    **server: Any,
) -> None:
    """Search a conversation's whole history for WORDS, the best hit first."""
    answer = _get(server, conversation, "search", q=" ".join(words), limit=limit, cursor=cursor)
    _show(answer, ("position", "state", "role", "text"), _messages(answer["data"]), as_json=as_json)


@conversations.command()
@_server_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    help="A file, replaced when the export is complete; - is standard output.",
)
@click.argument("conversation", metavar="ID")
def export(conversation: str, output: str, **server: Any) -> None:
    """Write a conversation as lines of JSON, one message each."""
    pieces = _request(server, "GET", _path(conversation, "export"))
    file = Path(output)
    try:
        if output == "-" or (
            file.exists() and not file.is_file()
        ):  # a pipe or a device has no earlier content to preserve
            with click.open_file(output, "wb") as stream:
                stream.writelines(pieces)
        else:
            _replace(file.resolve(), pieces)
    except BrokenPipeError:
        raise  # the reader closed the pipe, and click ends without a message
    except OSError as error:
        raise ServerRefusal(f"{output} cannot be written: {error.strerror}.") from error


@conversations.command("import")
@_server_options
@json_option
@click.option("--model", required=True, help="The model of the conversation.")
@click.option("--name", help="The client's name for the conversation.")
@click.argument("file", type=click.File("rb"), default="-")
def import_(file: IO[bytes], model: str, name: str | None, as_json: bool, **server: Any) -> None:
    """Store the conversation in FILE: lines of JSON, one message each; - or nothing is standard input."""
    query = urlencode({"model": model} | ({"name": name} if name else {}))
    answer = json.loads(b"".join(_request(server, "POST", f"{PATH}/import?{query}", file.read())))
    click.echo(json.dumps(answer, ensure_ascii=False) if as_json else answer["id"])


@conversations.command()
@_server_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.argument("conversation", metavar="ID")
def forget(conversation: str, yes: bool, **server: Any) -> None:
    """Delete a conversation for good: messages, summaries, names."""
    if not yes:
        click.confirm(f"Forget {_printable(conversation)} for good?", abort=True)
    answer = json.loads(b"".join(_request(server, "DELETE", _path(conversation))))
    click.echo(f"forgotten: {answer['id']}")


def _replace(file: Path, pieces: Iterable[bytes]) -> None:
    """Write a new file beside the old one, and replace it after the last piece."""
    part = file.with_name(f".{file.name[:100]}.{secrets.token_hex(4)}")
    try:
        with part.open("xb") as stream:
            stream.writelines(pieces)
        if file.exists():
            shutil.copymode(file, part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _path(conversation: str, part: str = "") -> str:
    return f"{PATH}/{quote(conversation, safe='')}" + (f"/{part}" if part else "")


def _get(server: Mapping[str, Any], conversation: str, part: str = "", **query: Any) -> Any:
    parameters = urlencode({name: value for name, value in query.items() if value is not None})
    path = _path(conversation, part) if conversation else PATH
    return json.loads(b"".join(_request(server, "GET", f"{path}?{parameters}")))


def _request(server: Mapping[str, Any], method: str, path: str, body: bytes | None = None) -> Iterator[bytes]:
    """Yield the server's answer in pieces; raise an error for its refusal."""
    url = urlsplit(server["url"] or _configured(server["config"]))
    if url.scheme not in ("http", "https") or not url.hostname:
        raise click.UsageError("--url must be something like http://127.0.0.1:8787.")
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname, url.port, timeout=TIMEOUT_SECONDS)
    answer = None
    try:
        connection.request(method, url.path.rstrip("/") + path, body, _headers(operator=server["operator"]))
        answer = connection.getresponse()
        if answer.status >= 400:
            _refuse(answer)
        while piece := answer.read(PIECE_BYTES):
            yield piece
        if answer.length:  # http.client reports a missing end for chunked answers only
            raise IncompleteRead(b"", answer.length)
    except (OSError, HTTPException) as error:
        if answer is not None:
            raise ServerRefusal(f"The answer of Tidemark at {url.netloc} broke off: {error}. Try again.") from error
        raise ServerRefusal(f"Tidemark does not answer at {url.netloc}: {error}. Is it running?") from error
    finally:
        connection.close()


def _headers(*, operator: bool) -> Mapping[str, str]:
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


def _configured(config: Path | None) -> str:
    """Return the URL of Tidemark by the configuration."""
    from proxy.config import load

    server = load(config, os.environ).server
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - the client connects to it, and binds nothing
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def _messages(data: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(str(entry["position"]), entry["state"].replace("_", " "), _role(entry), _text(entry)) for entry in data]


def _role(entry: Mapping[str, Any]) -> str:
    return str(entry["message"]["role"]) if entry["message"] else "-"


def _text(entry: Mapping[str, Any]) -> str:
    """Return the search hit's snippet, or the beginning of the message."""
    message = entry["message"] or {}
    content = entry.get("snippet") or message.get("content") or message.get("tool_calls") or ""
    text = " ".join((content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).split())
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 3] + "..."


def _last_use(entry: Mapping[str, Any]) -> str:
    return datetime.fromtimestamp(entry["updated_at"], UTC).strftime("%Y-%m-%d %H:%M UTC")


def _show(answer: Mapping[str, Any], heads: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer, ensure_ascii=False))
        return
    cells = [list(heads), *([_printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if answer.get("unreadable"):
        click.echo(f"cannot be read: {', '.join(answer['unreadable'])}", err=True)
    if answer["has_more"]:
        click.echo(f"more: --cursor {answer['next_cursor']}", err=True)


def _printable(text: str) -> str:
    """Replace control characters: clients choose the texts, and a terminal would obey them."""
    return "".join(char if char.isprintable() else "?" for char in text)
