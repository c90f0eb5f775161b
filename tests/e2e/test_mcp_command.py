"""``tidemark mcp`` as agents use it: by the official client, over standard input and over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.test_command import WAIT_SECONDS, Machine, Tidemark, machine
from tests.request.talk import Said, assistant, user
from tests.support.clusters import free_ports
from tests.support.waiting import wait_until

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

LONG = "Row 17 of the invoice says 4,711 euros. " * 200


@pytest.fixture
def tidemark(machine: Machine) -> Tidemark:
    """A server with a compacted conversation of its key, whose first message is long."""
    tidemark = machine.small()
    said: list[Said] = [user(LONG)]
    for number in range(6):
        said += [assistant("Fine."), user(f"Question {number}? " + "Please remember the address of delivery. " * 30)]
    assert tidemark.chat(said).headers["x-tidemark-action"] == "compacted"
    return tidemark


def words(answer: Any) -> str:
    """The text of a tool's answer."""
    return "".join(part.text for part in answer.content)


@asynccontextmanager
async def on_stdio(machine: Machine, tidemark: Tidemark) -> AsyncIterator[ClientSession]:
    """A session with a command that the client starts, with a key in its environment."""
    command = ["-m", "tidemark", "mcp", "--url", tidemark.url]
    environ = {**machine.environ, "OPENAI_API_KEY": tidemark.key}
    started = StdioServerParameters(command=sys.executable, args=command, env=environ, cwd=machine.folder)
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


async def test_an_agent_finds_reads_and_compacts_its_conversation(machine: Machine, tidemark: Tidemark) -> None:
    """It has the environment's key; a message that its list cuts comes whole by its id."""
    async with on_stdio(machine, tidemark) as session:
        tools = (await session.list_tools()).tools
        assert {tool.name: bool(tool.annotations and tool.annotations.read_only_hint) for tool in tools} == {
            "search_conversations": True,
            "get_messages": True,
            "get_result": True,
            "get_savings": True,
            "compact_now": False,
        }
        found = (await session.call_tool("search_conversations", {"query": "invoice"})).structured_content
        [conversation] = [entry["id"] for entry in found["data"]]
        hits = await session.call_tool("search_conversations", {"query": "4,711", "conversation": conversation})
        [hit] = hits.structured_content["data"]
        assert (hit["state"], hit["role"], hit["text"] in LONG) == ("summarized", "user", False)
        asked = {"conversation": conversation, "handle": hit["id"]}
        assert words(await session.call_tool("get_result", asked)) == LONG
        page = (await session.call_tool("get_messages", {"conversation": conversation, "limit": 2})).structured_content
        assert [entry["position"] for entry in page["data"]] == [1, 2]
        more = {"conversation": conversation, "cursor": page["next_cursor"]}
        assert (await session.call_tool("get_messages", more)).structured_content["data"][0]["position"] == 3
        compacted = await session.call_tool("compact_now", {"conversation": conversation, "retention_tokens": 0})
        assert compacted.structured_content["conversation"] == conversation
        saved = (await session.call_tool("get_savings", {"conversation": conversation})).structured_content
        assert (saved["turns"], saved["summaries"], "bill" in saved) == (1, 2, True)
        assert "data" in (await session.call_tool("get_savings", {})).structured_content
        refused = await session.call_tool("get_result", {"conversation": conversation, "handle": "m00000000"})
        assert (refused.is_error, "no message with the handle" in words(refused)) == (True, True)


async def test_an_agent_finds_conversations_by_program_and_dialect(machine: Machine, tidemark: Tidemark) -> None:
    """Both are in each entry and narrow the list, without words too; an unknown dialect is refused with all of them."""
    async with on_stdio(machine, tidemark) as session:

        async def found(**asked: str) -> list[tuple[str, str]]:
            answer = (await session.call_tool("search_conversations", asked)).structured_content
            return [(entry["client"], entry["dialect"]) for entry in answer["data"]]

        [(client, dialect)] = everything = await found()
        assert (client.startswith("python-httpx"), dialect) == (True, "chat")
        assert await found(client=client[:6].upper(), dialect="chat", query="invoice") == everything
        assert await found(client="claude-cli") == await found(dialect="messages") == []
        refused = await session.call_tool("search_conversations", {"dialect": "telex"})
        assert (refused.is_error, "must be one of chat, " in words(refused)) == (True, True), words(refused)


@pytest.fixture
def address(machine: Machine, tidemark: Tidemark) -> Iterator[str]:
    """The address of the tools over HTTP; the environment has a key that nobody else may use."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tidemark", "mcp", "--url", tidemark.url, "--port", str(port)]
    environ = {**machine.environ, "OPENAI_API_KEY": tidemark.key}
    with subprocess.Popen(command, env=environ, cwd=machine.folder) as process:
        wait_until(lambda: listens(port), WAIT_SECONDS)
        yield f"http://127.0.0.1:{port}/mcp"
        process.terminate()


def listens(port: int) -> bool:
    """Whether anybody takes connections there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def found_by(address: str, key: str | None) -> list[Any]:
    """The conversations that a client finds over HTTP with a key of its own."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(address, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        answer = await session.call_tool("search_conversations", {"query": "invoice"})
        return list(answer.structured_content["data"])


async def test_each_client_over_http_has_its_own_conversations(address: str, tidemark: Tidemark) -> None:
    """Whoever sends no key gets nothing by the key of the server's environment."""
    assert len(await found_by(address, tidemark.key)) == 1
    assert await found_by(address, "sk-of-somebody-else") == []
    assert await found_by(address, None) == []
