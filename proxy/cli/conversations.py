"""``tidemark conversations``: stored conversations from the command line, over HTTP to a running server.

Beside ``cli/main.py``, whose group it joins. It asks as a client does, with the key of the environment, so it sees what
that client sees; as the operator it sees everybody's.
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
"""Of a message in a table."""

_url = click.option("--url", help="Where Tidemark listens; by default what the configuration says.")
_operator = click.option("--operator", is_flag=True, help="Ask with TIDEMARK_ADMIN_TOKEN in place of OPENAI_API_KEY.")
_limit = click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Entries of a page.")
_cursor = click.option("--cursor", help="Where the page begins: what the page before said.")


class ServerRefusal(TidemarkError):
    """The server did not do what was asked."""


def _asking(command: F) -> F:
    """The options that say whom is asked, and as who."""
    for option in (config_option, _url, _operator):
        command = option(command)
    return command


def _paging(command: F) -> F:
    return _cursor(_limit(command))


@click.group()
def conversations() -> None:
    """Look at stored conversations, search, export, import and forget them.

    ID is what X-Tidemark-Conversation says, or the name that the client gave. A server must be running.
    """


@conversations.command("list")
@_asking
@json_option
@_paging
def list_(as_json: bool, limit: int, cursor: str | None, **server: Any) -> None:
    """List conversations, the one used last first."""
    told = _got(server, "", limit=limit, cursor=cursor)
    rows = [
        (one["id"], one["name"] or "-", one["model"], f"{one['messages']:,}", f"{one['tokens']:,}", _day(one))
        for one in told["data"]
    ]
    _show(told, ("id", "name", "model", "messages", "tokens", "last used"), rows, as_json=as_json)


@conversations.command()
@_asking
@json_option
@_paging
@click.argument("conversation", metavar="ID")
def show(conversation: str, as_json: bool, limit: int, cursor: str | None, **server: Any) -> None:
    """Show a conversation's messages, and which of them the model still sees."""
    told = _got(server, conversation, limit=limit, cursor=cursor)
    _show(told, ("position", "state", "role", "text"), _messages(told["data"]), as_json=as_json)


@conversations.command()
@_asking
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
    told = _got(server, conversation, "search", q=" ".join(words), limit=limit, cursor=cursor)
    _show(told, ("position", "state", "role", "text"), _messages(told["data"]), as_json=as_json)


@conversations.command()
@_asking
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    help="A file, replaced when all is there; - is standard output.",
)
@click.argument("conversation", metavar="ID")
def export(conversation: str, output: str, **server: Any) -> None:
    """Write a conversation as lines of JSON, one message each."""
    pieces = _asked(server, "GET", _path(conversation, "export"))
    file = Path(output)
    try:
        if output == "-" or (file.exists() and not file.is_file()):  # a pipe or a device has no earlier text to keep
            with click.open_file(output, "wb") as stream:
                stream.writelines(pieces)
        else:
            _replace(file.resolve(), pieces)
    except BrokenPipeError:
        raise  # whoever read has read enough; click ends quietly then
    except OSError as error:
        raise ServerRefusal(f"{output} cannot be written: {error.strerror}.") from error


@conversations.command("import")
@_asking
@json_option
@click.option("--model", required=True, help="The model whose conversation it is.")
@click.option("--name", help="What the client will call it.")
@click.argument("file", type=click.File("rb"), default="-")
def import_(file: IO[bytes], model: str, name: str | None, as_json: bool, **server: Any) -> None:
    """Store the conversation in FILE: lines of JSON, one message each; - or nothing is standard input."""
    query = urlencode({"model": model} | ({"name": name} if name else {}))
    told = json.loads(b"".join(_asked(server, "POST", f"{PATH}/import?{query}", file.read())))
    click.echo(json.dumps(told, ensure_ascii=False) if as_json else told["id"])


@conversations.command()
@_asking
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@click.argument("conversation", metavar="ID")
def forget(conversation: str, yes: bool, **server: Any) -> None:
    """Delete a conversation for good: messages, summaries, names."""
    if not yes:
        click.confirm(f"Forget {_printable(conversation)} for good?", abort=True)
    told = json.loads(b"".join(_asked(server, "DELETE", _path(conversation))))
    click.echo(f"forgotten: {told['id']}")


def _replace(file: Path, pieces: Iterable[bytes]) -> None:
    """Write beside an earlier file, and take its place after the last piece: what breaks off changes nothing."""
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


def _got(server: Mapping[str, Any], conversation: str, part: str = "", **query: Any) -> Any:
    said = urlencode({name: value for name, value in query.items() if value is not None})
    path = _path(conversation, part) if conversation else PATH
    return json.loads(b"".join(_asked(server, "GET", f"{path}?{said}")))


def _asked(server: Mapping[str, Any], method: str, path: str, body: bytes | None = None) -> Iterator[bytes]:
    """What the server answers, piece by piece; its refusal is our error."""
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
        if answer.length:  # http.client tells of a missing end in chunks only
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
        told = json.loads(answer.read())["error"]["message"]
    except (ValueError, KeyError, TypeError):
        told = f"the server answered with status {answer.status}"
    raise ServerRefusal(str(told))


def _configured(config: Path | None) -> str:
    """Where the configuration says that Tidemark listens."""
    from proxy.config import load

    server = load(config, os.environ).server
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(server.host, server.host)  # noqa: S104 - it is asked, not bound
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def _messages(data: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(str(one["position"]), one["state"].replace("_", " "), _role(one), _text(one)) for one in data]


def _role(one: Mapping[str, Any]) -> str:
    return str(one["message"]["role"]) if one["message"] else "-"


def _text(one: Mapping[str, Any]) -> str:
    """What was found, or the beginning of what was said."""
    message = one["message"] or {}
    said = one.get("snippet") or message.get("content") or message.get("tool_calls") or ""
    text = " ".join((said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)).split())
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 3] + "..."


def _day(one: Mapping[str, Any]) -> str:
    return datetime.fromtimestamp(one["updated_at"], UTC).strftime("%Y-%m-%d %H:%M UTC")


def _show(told: Mapping[str, Any], heads: Sequence[str], rows: Sequence[Sequence[str]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    cells = [list(heads), *([_printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        click.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if told.get("unreadable"):
        click.echo(f"cannot be read: {', '.join(told['unreadable'])}", err=True)
    if told["has_more"]:
        click.echo(f"more: --cursor {told['next_cursor']}", err=True)


def _printable(text: str) -> str:
    """Clients choose the words, and a terminal would obey what is in them."""
    return "".join(char if char.isprintable() else "?" for char in text)
