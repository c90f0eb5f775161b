"""Gives agents tools that read and compact stored conversations, by the Model Context Protocol: ``tidemark mcp``.

Each tool asks a running Tidemark over HTTP, with the credential of whoever calls it, so it reaches what that credential
reaches and nothing else. The official library speaks the protocol (specification 2025-11-25, "Tools").
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import getdoc
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from tidemark import __version__
from tidemark.core.errors import TidemarkError
from tidemark.terminal.http_client import request

INSTRUCTIONS = (
    "Tidemark stores conversations with language models, and replaces their oldest messages by a summary when they "
    "grow too long. These tools find what the summary left out: search first, then read messages or a result whole."
)
MOST_CHARACTERS = 2000
"""Of one message in a list; ``get_result`` returns it whole."""
CREDENTIALS = ("authorization", "x-api-key", "api-key")
"""Headers of a client over HTTP that are passed on to Tidemark."""

READING = ToolAnnotations(read_only_hint=True, open_world_hint=False)
COMPACTING = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
"""Whether a client may call them without asking its user: originals stay in the store."""

Conversation = Annotated[str, Field(description="The conversation's id, or the name that its client gave it.")]
Limit = Annotated[int, Field(ge=1, le=50, description="The most entries of the answer.")]
Cursor = Annotated[str | None, Field(description="next_cursor of the page before.")]
JsonObject = dict[str, Any]


class Tools:
    """The tools; each method is one, and its docstring is what the model reads.

    :param server: how ``terminal/http_client.py`` reaches Tidemark
    :param is_remote: whether each call brings its own credential, and the environment's must not be used
    """

    def __init__(self, server: Mapping[str, Any], *, is_remote: bool) -> None:
        self._server = server
        self._is_remote = is_remote

    def search_conversations(
        self,
        context: Context[Any, Any],
        query: Annotated[str, Field(description="Words to find; empty for all conversations.")] = "",
        conversation: Annotated[str | None, Field(description="Search the messages of this one only.")] = None,
        *,
        client: Annotated[
            str, Field(description="The beginning of the name of the program that sent the newest request.")
        ] = "",
        dialect: Annotated[
            str, Field(description="The newest request's dialect: chat, messages or responses; empty for all.")
        ] = "",
        limit: Limit = 10,
        cursor: Cursor = None,
    ) -> JsonObject:
        """Find stored conversations by words, program and dialect, or with `conversation` its messages by words.

        The newest conversation or the best hit comes first. Messages that a summary has replaced are found too.
        """
        page = _query(limit=limit, cursor=cursor)
        if conversation is None:
            conditions = {"query": query, "client": client, "dialect": dialect}
            return self._ask(context, "POST", f"/tidemark/conversations/search{page}", conditions)
        if not query:
            raise ToolError("With a conversation, a query is needed; get_messages reads all of its messages.")
        return _shown(self._ask(context, "GET", _path(conversation, "search", q=query, limit=limit, cursor=cursor)))

    def get_messages(
        self, context: Context[Any, Any], conversation: Conversation, limit: Limit = 20, cursor: Cursor = None
    ) -> JsonObject:
        """Read a conversation's messages, oldest first. `state` says whether the model still sees each of them.

        Long messages are cut; `get_result` returns one whole by its `id`.
        """
        return _shown(self._ask(context, "GET", _path(conversation, limit=limit, cursor=cursor)))

    def get_result(
        self,
        context: Context[Any, Any],
        conversation: Conversation,
        handle: Annotated[str, Field(description="A message's id, or the handle in a summary, such as m1a2b3c4d.")],
    ) -> str:
        """Return one message or tool result whole, byte for byte."""
        part = f"results/{quote(handle, safe='')}"
        return self._read(context, "GET", _path(conversation, part)).decode()

    def compact_now(
        self,
        context: Context[Any, Any],
        conversation: Conversation,
        retention_tokens: Annotated[int | None, Field(ge=0, description="Tokens of newest messages to keep.")] = None,
    ) -> JsonObject:
        """Replace a conversation's oldest messages by a summary now; its next request uses it."""
        body = {} if retention_tokens is None else {"retention_tokens": retention_tokens}
        return self._ask(context, "POST", _path(conversation, "summarize"), body)

    def get_savings(
        self,
        context: Context[Any, Any],
        conversation: Annotated[
            str | None, Field(description="One conversation; without it, all of the server.")
        ] = None,
        since: Annotated[str, Field(pattern="^[1-9][0-9]{0,2}d$", description="Days, of all of the server.")] = "7d",
    ) -> JsonObject:
        """Return what requests cost and what compaction saved; of the whole server, for its operator only."""
        if conversation is None:
            return self._ask(context, "GET", f"/tidemark/gain{_query(since=since)}")
        shown = self._ask(context, "GET", _path(conversation, limit=1))
        wanted = (
            "conversation",
            "id",
            "messages",
            "tokens",
            "turns",
            "summaries",
            "summarized_messages",
            "usage",
            "bill",
        )
        return {name: shown[name] for name in wanted if name in shown}

    def _ask(self, context: Context[Any, Any], method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        answer: JsonObject = json.loads(self._read(context, method, path, body))
        return answer

    def _read(self, context: Context[Any, Any], method: str, path: str, body: JsonObject | None = None) -> bytes:
        server = dict(self._server)
        if self._is_remote:
            headers = context.headers or {}
            server["headers"] = {name: headers[name] for name in CREDENTIALS if name in headers}
        try:
            return b"".join(request(server, method, path, None if body is None else json.dumps(body).encode()))
        except TidemarkError as error:  # what the model can read and act upon
            raise ToolError(str(error)) from error


def make_server(server: Mapping[str, Any], *, is_remote: bool) -> MCPServer[Any]:
    """Return a server of the protocol with all tools.

    :param server: ``url``, ``config`` and ``operator`` of a running Tidemark
    :param is_remote: whether clients come over HTTP
    """
    protocol_server = MCPServer(
        "tidemark", title="Tidemark", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    tools = Tools(server, is_remote=is_remote)
    reading: tuple[Callable[..., Any], ...] = (
        tools.search_conversations,
        tools.get_messages,
        tools.get_result,
        tools.get_savings,
    )
    for tool in reading:
        protocol_server.add_tool(tool, description=getdoc(tool), annotations=READING)
    protocol_server.add_tool(tools.compact_now, description=getdoc(tools.compact_now), annotations=COMPACTING)
    return protocol_server


def _path(conversation: str, part: str = "", **query: str | float | None) -> str:
    place = f"/tidemark/conversations/{quote(conversation, safe='')}"
    return f"{place}/{part}{_query(**query)}" if part else f"{place}{_query(**query)}"


def _query(**values: str | float | None) -> str:
    parameters = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(parameters)}" if parameters else ""


def _shown(page: JsonObject) -> JsonObject:
    """Return a page of messages as a model reads it: place, state, id, role and text of each."""
    return {
        "data": [
            {
                "position": entry["position"],
                "state": entry["state"],
                "id": entry["id"],
                "role": (entry["message"] or {}).get("role", ""),
                "text": _cut(entry["message"] or {}),
            }
            for entry in page["data"]
        ],
        "has_more": page["has_more"],
        "next_cursor": page["next_cursor"],
    }


def _cut(message: JsonObject) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else json.dumps(message, ensure_ascii=False)
    rest = len(text) - MOST_CHARACTERS
    return text if rest <= 0 else f"{text[:MOST_CHARACTERS]} [{rest:,} more characters: get_result]"


def run(server: Mapping[str, Any], *, port: int | None, host: str) -> None:
    """Serve until the client closes standard input or, over HTTP, until a signal comes.

    :param port: None for standard input and output
    """
    if port is None:
        make_server(server, is_remote=False).run("stdio")
    else:
        make_server(server, is_remote=True).run("streamable-http", host=host, port=port, stateless_http=True)
