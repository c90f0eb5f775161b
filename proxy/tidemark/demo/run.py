"""Drives `tidemark demo`: it starts both servers, runs both conversations, and compares them.

`tidemark/cli/main.py` calls `main`. Everything it starts is a context manager, so the end, a failure and a signal all
clean up in the same way: no process and no file remains.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tidemark.core.frozen import frozen
from tidemark.demo import children, llama
from tidemark.demo.children import Child
from tidemark.demo.screen import (
    HEADING,
    AnsweredTurn,
    Conversation,
    FailedTurn,
    Screen,
    Water,
    comparison,
    say,
    turn_line,
    verdict,
)
from tidemark.demo.script import script

_WATCH_SECONDS = 0.5
CONSOLE_PATH = "/console"
SERVE_PORT = 8787
"""Tidemark's own default port, used with `--serve` while it is free."""
READY_PATH = "/health/readiness"
_THRESHOLD = 0.85
"""Ratio of the window at which compaction is due. Lower than the default, because the model's own tokenizer
makes up to 11 % more tokens of this conversation than the tokenizers that Tidemark counts with."""
_TARGET = 0.45
"""Ratio of the limit to which a compaction brings a request: the default of docs/configuration.md."""
_CONFIG = f"""\
# TIDEMARK_UPSTREAM is the model's address, and its server reports its window. That server wants no key; a stated one
# lets the console's visitor have summaries written by the model, too.
model_list:
  - model_name: {llama.MODEL}
    litellm_params: {{model: openai/{llama.MODEL}, api_key: none}}
compaction:
  defaults: {{strategy: extractive, threshold: {_THRESHOLD}, target: {_TARGET}, retention_tokens: 300}}
"""


@frozen
class Servers:
    """The two running servers and Tidemark's port on 127.0.0.1."""

    model: Child
    model_port: int
    proxy: Child
    proxy_port: int

    @property
    def url(self) -> str:
        return f"http://{children.HOST}:{self.proxy_port}"

    def stay(self) -> None:
        """Wait for Ctrl-C, as long as both servers run."""
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(_WATCH_SECONDS)
                self.model.check()
                self.proxy.check()


def main(
    turns: int = 40,
    serve: bool = False,  # noqa: FBT001, FBT002 - a flag of the command line
    *,
    window_tokens: int = llama.WINDOW_TOKENS,
) -> int:
    """Run the demo and return the exit code.

    With `serve`, start both servers, print their addresses, and wait for Ctrl-C or SIGTERM without a conversation.
    Without it, run the conversation of `turns` turns twice. Exit code 0 then means that it overflowed directly and was
    finished through Tidemark.
    """
    try:
        llama.weights()
        with children.ended_by_signals(), tempfile.TemporaryDirectory(prefix="tidemark-demo-") as folder:
            return _serve(Path(folder), window_tokens) if serve else _compare(Path(folder), window_tokens, turns)
    except (llama.ExtraMissingError, children.ChildError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the demo prints its results
        return 1
    except BrokenPipeError:  # the reader is gone; the interpreter's last flush must not fail either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except children.EndedBySignal as end:
        return 128 + end.number
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def water(limit_tokens: int | None, window_tokens: int = llama.WINDOW_TOKENS) -> Water:
    """Return the marks of a request whose limit is `limit_tokens`, by the rules of docs/compaction.md under `_CONFIG`.

    Without a limit, as on the direct way to the server, there are no marks.
    """
    if limit_tokens is None:
        return Water(window_tokens)
    high = min(int(_THRESHOLD * window_tokens), limit_tokens)
    return Water(window_tokens, int(_TARGET * limit_tokens), high)


def _serve(folder: Path, window_tokens: int) -> int:
    port = children.free_port(SERVE_PORT)
    if port != SERVE_PORT:
        say(f"Port {SERVE_PORT} is taken, so Tidemark gets port {port}.")
    with _servers(folder, window_tokens, port) as servers:
        servers.proxy.wait_ready(port, READY_PATH)
        messages = [{"role": "user", "content": "Name three Greek islands."}]
        body = json.dumps({"model": llama.MODEL, "stream": True, "messages": messages})
        say(f"Tidemark is running in front of {llama.MODEL} with a window of {window_tokens} tokens.")
        say(f"export OPENAI_BASE_URL={servers.url}/v1")
        say("export OPENAI_API_KEY=unused")
        say(f"export ANTHROPIC_BASE_URL={servers.url}")
        say("export ANTHROPIC_API_KEY=unused")
        say(f"curl -N {servers.url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'")
        say(f"Console: {servers.url}{CONSOLE_PATH}")
        say("Ctrl-C stops both.")
        servers.stay()
    return 0


def _compare(folder: Path, window_tokens: int, turns: int) -> int:
    started = time.monotonic()
    say(f"Starting {llama.MODEL} on llama.cpp, window {window_tokens} tokens, and Tidemark in front of it.")
    with _servers(folder, window_tokens, children.free_port()) as servers:
        import tidemark.demo.talk  # noqa: F401, PLC0415 - imports the client, while Tidemark starts

        servers.proxy.wait_ready(servers.proxy_port, READY_PATH)
        say(f"Both answer after {time.monotonic() - started:.1f} s.")
        say(f"Watch it in a browser: {servers.url}{CONSOLE_PATH}")
        with Screen() as out:
            out.say(f"\nStraight to the model's server, {turns} turns:")
            direct = _run_conversation("direct", servers.model_port, turns, out, window_tokens)
            out.say("\nThe same person through Tidemark:")
            proxied = _run_conversation("tidemark", servers.proxy_port, turns, out, window_tokens)
        if proxied.failure:
            say(servers.proxy.last_lines())
        is_shown, sentence = verdict(direct, proxied)
        for line in ["", *comparison(direct, proxied), "", sentence]:
            say(line)
        say(f"The whole demo took {time.monotonic() - started:.0f} s.")
        if sys.stdin.isatty() and sys.stdout.isatty():  # nobody would end it anywhere else
            say(f"The conversation stays at {servers.url}{CONSOLE_PATH} until Ctrl-C ends the demo.")
            servers.stay()
    return 0 if is_shown else 1


@contextlib.contextmanager
def _servers(folder: Path, window_tokens: int, proxy_port: int) -> Iterator[Servers]:
    """Run both servers; when the block begins, the model answers and Tidemark is still starting.

    :param folder: has their files, and is deleted when the demo ends
    """
    model_port = children.free_port()
    command = llama.command(model_port, window_tokens)
    with children.child("The model's server", command, folder / "llama.log") as model:
        model.wait_ready(model_port, llama.HEALTH_PATH)
        settings = folder / "tidemark.yaml"
        settings.write_text(_CONFIG, encoding="utf-8")
        where = ["--config", str(settings), "--host", children.HOST, "--port", str(proxy_port)]
        command = [sys.executable, "-m", "tidemark", "serve", *where]
        environ = _environ(f"http://{children.HOST}:{model_port}/v1", folder / "data")
        with children.child("Tidemark", command, folder / "tidemark.log", environ) as proxy:
            yield Servers(model, model_port, proxy, proxy_port)


def _environ(upstream: str, data: Path) -> dict[str, str]:
    """Return the environment of the demo's Tidemark: no settings of the user, no proxy to itself."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
    direct = ",".join(filter(None, [inherited.get("NO_PROXY") or inherited.get("no_proxy"), children.HOST]))
    ours = {"TIDEMARK_UPSTREAM": upstream, "TIDEMARK_DATA_DIR": str(data)}
    return {**inherited, "NO_PROXY": direct, "no_proxy": direct, **ours}


def _run_conversation(name: str, port: int, turns: int, out: Screen, window_tokens: int) -> Conversation:
    """Run one conversation to its end or its first failure, with a line for each turn."""
    from tidemark.demo.talk import client_of, converse  # noqa: PLC0415 - see `_compare`

    started = time.monotonic()
    answered: list[AnsweredTurn] = []
    failure = None
    out.say(HEADING)
    for turn in converse(client_of(port), script(turns), out.listen):
        out.say(turn_line(turn, out.columns))
        if isinstance(turn, FailedTurn):
            failure = turn
            break
        answered.append(turn)
        out.gauge(turn.after_tokens, water(turn.limit_tokens, window_tokens), title=f"{name} {turn.number}/{turns}")
    return Conversation(turns, tuple(answered), failure, time.monotonic() - started)
