"""The command ``tidemark conversations``: it uses stored conversations over HTTP, through a running server.

``cli/main.py`` adds it to its group. It sends the environment's key as a client does, so it sees what that client sees;
with the operator's token it sees all conversations.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode

import click

from tidemark.terminal.http_client import ServerRefusal, request, server_options
from tidemark.terminal.options import confirm, example, json_option, yes_option
from tidemark.terminal.progress import progress
from tidemark.terminal.tables import print_json, print_table, printable
from tidemark.terminal.whole_files import write_whole

F = TypeVar("F", bound=Callable[..., Any])
PATH = "/tidemark/conversations"
TEXT_CHARACTERS = 100
"""The most characters of a message in a table."""

_HEADS = ("id", "name", "model", "messages", "tokens", "last used")

_limit = click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Entries of a page.")
_cursor = click.option("--cursor", help="The beginning of the page, from the page before.")


def _paging(command: F) -> F:
    return _cursor(_limit(command))


@click.group(
    epilog=example("tidemark conversations list"), short_help="List, search, export, import, forget conversations."
)
def conversations() -> None:
    """Look at stored conversations, search, export, import and forget them.

    ID is the value of X-Tidemark-Conversation, or the name that the client chose. A server must be running.
    """


@conversations.command("list", epilog=example("tidemark conversations list --limit 20"))
@server_options
@json_option
@_paging
def list_(as_json: bool, limit: int, cursor: str | None, **server: Any) -> None:
    """List conversations, the one used last first."""
    answer = _get(server, "", limit=limit, cursor=cursor)
    _show(answer, _HEADS, _rows(answer["data"]), as_json=as_json)


@conversations.command(
    epilog=example("tidemark conversations show my-chat"), short_help="Show messages, and which the model still sees."
)
@server_options
@json_option
@_paging
@click.argument("conversation", metavar="ID")
def show(conversation: str, as_json: bool, limit: int, cursor: str | None, **server: Any) -> None:
    """Show a conversation's messages, and which of them the model still sees."""
    answer = _get(server, conversation, limit=limit, cursor=cursor)
    _show(answer, ("position", "state", "role", "text"), _messages(answer["data"]), as_json=as_json)


@conversations.command(
    epilog=example(
        "tidemark conversations search database password", "tidemark conversations search --in my-chat database"
    ),
    short_help="Find conversations by words, or messages of one.",
)
@server_options
@json_option
@_paging
@click.option("--in", "conversation", metavar="ID", help="List the messages of this conversation that have the words.")
@click.argument("words", nargs=-1, required=True)
def search(
    words: tuple[str, ...],
    conversation: str | None,
    as_json: bool,
    limit: int,
    cursor: str | None,
    **server: Any,
) -> None:
    """Find conversations that have WORDS in their names or in a message, the one used last first.

    With --in, the messages of one, the best hit first.
    """
    query = " ".join(words)
    if conversation is not None:
        answer = _get(server, conversation, "search", q=query, limit=limit, cursor=cursor)
        _show(answer, ("position", "state", "role", "text"), _messages(answer["data"]), as_json=as_json)
        return
    body, answer = json.dumps({"query": query}).encode(), None
    while answer is None or (not answer["data"] and answer["has_more"]):  # a page looks through some conversations only
        place = _parameters(limit=limit, cursor=answer["next_cursor"] if answer else cursor)
        answer = json.loads(b"".join(request(server, "POST", f"{PATH}/search?{place}", body)))
    _show(answer, _HEADS, _rows(answer["data"]), as_json=as_json)


@conversations.command(epilog=example("tidemark conversations export my-chat --output my-chat.jsonl"))
@server_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default="-",
    show_default=True,
    help="A file, replaced when the export is complete; - is standard output.",
)
@click.argument("conversation", metavar="ID")
def export(conversation: str, output: str, **server: Any) -> None:
    """Write a conversation as lines of JSON, one message each."""
    file = Path(output)
    to_terminal = output == "-" and sys.stdout.isatty()
    with progress("exporting", is_shown=not to_terminal) as bar:
        _write(file, bar.counted(request(server, "GET", _path(conversation, "export"))), output)


def _write(file: Path, pieces: Iterable[bytes], output: str) -> None:
    """Write an export to a file, or where ``output`` says.

    :raises ServerRefusal: the file cannot be written
    """
    try:
        is_stream = file.exists() and not file.is_file()  # a pipe or a device has no earlier content to preserve
        if output == "-" or is_stream:
            with click.open_file(output, "wb") as stream:
                stream.writelines(pieces)
        else:
            write_whole(file.resolve(), pieces)
    except BrokenPipeError:
        raise  # the reader closed the pipe, and click ends without a message
    except OSError as error:
        raise ServerRefusal(f"{output} cannot be written: {error.strerror}.") from error


@conversations.command("import", epilog=example("tidemark conversations import --model gpt-4o my-chat.jsonl"))
@server_options
@json_option
@click.option("--model", required=True, help="The model of the conversation.")
@click.option("--name", help="The client's name for the conversation.")
@click.argument("file", type=click.File("rb"), default="-")
def import_(file: IO[bytes], model: str, name: str | None, as_json: bool, **server: Any) -> None:
    """Store the conversation in FILE.

    It has lines of JSON, one message each; - or nothing is standard input.
    """
    query = urlencode({"model": model} | ({"name": name} if name else {}))
    body = file.read()
    with progress("importing", len(body)) as bar:
        answer = json.loads(b"".join(request(server, "POST", f"{PATH}/import?{query}", body, bar.advance)))
    if as_json:
        print_json(answer)
    else:
        click.echo(answer["id"])


@conversations.command(epilog=example("tidemark conversations forget my-chat"))
@server_options
@json_option
@yes_option
@click.argument("conversation", metavar="ID")
def forget(conversation: str, as_json: bool, yes: bool, **server: Any) -> None:
    """Delete a conversation for good: messages, summaries, names."""
    confirm(f"Forget {printable(conversation)} for good?", yes=yes)
    answer = json.loads(b"".join(request(server, "DELETE", _path(conversation))))
    if as_json:
        print_json(answer)
    else:
        click.echo(f"forgotten: {answer['id']}")


def _path(conversation: str, part: str = "") -> str:
    return f"{PATH}/{quote(conversation, safe='')}" + (f"/{part}" if part else "")


def _get(server: Mapping[str, Any], conversation: str, part: str = "", **query: Any) -> Any:
    path = _path(conversation, part) if conversation else PATH
    return json.loads(b"".join(request(server, "GET", f"{path}?{_parameters(**query)}")))


def _parameters(**query: Any) -> str:
    return urlencode({name: value for name, value in query.items() if value is not None})


def _rows(data: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            entry["id"],
            entry["name"] or "-",
            entry["model"],
            f"{entry['messages']:,}",
            f"{entry['tokens']:,}",
            _last_use(entry),
        )
        for entry in data
    ]


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
        print_json(answer)
        return
    print_table(heads, rows)
    if answer.get("unreadable"):
        click.echo(f"cannot be read: {', '.join(answer['unreadable'])}", err=True)
    if answer["has_more"]:
        click.echo(f"more: --cursor {answer['next_cursor']}", err=True)


COMMANDS = (conversations,)
