"""Drives `tidemark demo`: it starts both servers, runs both conversations, and compares them.

`tidemark/cli/main.py` calls `main`. Everything it starts is a context manager, so the end, a failure and a signal all
clean up in the same way: no process and no file remains.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tidemark.demo import children, llama
from tidemark.demo.children import Child
from tidemark.demo.screen import TARGET, THRESHOLD, Screen, comparison

SERVE_PORT = 8787
"""Tidemark's own default port, used with `--serve` while it is free."""
_CONFIG = f"""\
# TIDEMARK_UPSTREAM is the model's address, and its server reports its window. That server wants no key; a stated one
# lets the console's visitor have summaries written by the model, too.
model_list:
  - model_name: {llama.MODEL}
    litellm_params: {{model: openai/{llama.MODEL}, api_key: none}}
compaction:
  defaults: {{strategy: extractive, threshold: {THRESHOLD}, target: {TARGET}, retention_tokens: 300}}
"""
_HOW_TO = """\
export OPENAI_BASE_URL={url}/v1
export OPENAI_API_KEY=unused
export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_API_KEY=unused
curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' -d \
'{{"model": "{model}", "stream": true, "messages": [{{"role": "user", "content": "Name three Greek islands."}}]}}'
Console: {url}/console
Ctrl-C stops both."""


def main(*, turns: int = 22, serve: bool = False) -> int:
    """Run the demo and return the exit code.

    With `serve`, start both servers, print their addresses, and wait for Ctrl-C or SIGTERM without a conversation.
    Without it, run the conversation of `turns` turns twice. Exit code 0 then means that it overflowed directly and was
    finished through Tidemark.
    """
    try:
        llama.weights()
        children.exit_on_signals()
        with tempfile.TemporaryDirectory(prefix="tidemark-demo-") as folder:
            return _serve(Path(folder)) if serve else _compare(Path(folder), turns)
    except (llama.ExtraMissingError, children.ChildError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - the demo prints its results
        return 1


def _serve(folder: Path) -> int:
    with _servers(folder, children.free_port(SERVE_PORT)) as (model, proxy):
        proxy.wait_ready("/health/readiness")
        out = Screen()
        out.say(f"Tidemark is running in front of {llama.MODEL} with a window of {llama.WINDOW_TOKENS} tokens.")
        out.say(*_HOW_TO.format(url=proxy.url, model=llama.MODEL).splitlines())
        _stay(model, proxy)
    return 0


def _compare(folder: Path, turns: int) -> int:
    out, started = Screen(), time.monotonic()
    out.say(f"Starting {llama.MODEL} on llama.cpp, window {llama.WINDOW_TOKENS} tokens, and Tidemark in front of it.")
    with _servers(folder, children.free_port()) as (model, proxy):
        from tidemark.demo.talk import QUESTIONS, converse  # noqa: PLC0415 - while Tidemark starts; needs the extra

        proxy.wait_ready("/health/readiness")
        out.say(f"Both answer after {time.monotonic() - started:.1f} s.", f"Watch it in a browser: {proxy.url}/console")
        with out:
            out.say("", f"Through Tidemark, {turns} turns:")
            proxied = converse("tidemark", proxy.port, QUESTIONS[:turns], out)
            out.say("", "The same person straight to the model's server, until its window is full:")
            direct = converse("direct", model.port, QUESTIONS[:turns], out)
        if proxied[-1].error:
            out.say(proxy.last_lines())
        is_shown, lines = comparison(direct, proxied, turns)
        out.say("", *lines, f"The whole demo took {time.monotonic() - started:.0f} s.")
        if sys.stdin.isatty() and sys.stdout.isatty():  # nobody would end it anywhere else
            out.say(f"The conversation stays at {proxy.url}/console until Ctrl-C ends the demo.")
            _stay(model, proxy)
    return 0 if is_shown else 1


@contextlib.contextmanager
def _servers(folder: Path, proxy_port: int) -> Iterator[tuple[Child, Child]]:
    """Run the model's server and Tidemark; when the block begins, the model answers and Tidemark is still starting.

    :param folder: has their files, and is deleted when the demo ends
    """
    port = children.free_port()
    with children.child("The model's server", port, llama.command(port), folder / "llama.log") as model:
        model.wait_ready(llama.HEALTH_PATH)
        settings = folder / "tidemark.yaml"
        settings.write_text(_CONFIG, encoding="utf-8")
        where = ["--config", str(settings), "--host", children.HOST, "--port", str(proxy_port)]
        command = [sys.executable, "-m", "tidemark", "serve", *where]
        # No settings of the user, and no proxy: all is on this machine.
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.lower().startswith(("tidemark_", "http_proxy", "all_proxy"))
        }
        environ |= {"TIDEMARK_UPSTREAM": f"{model.url}/v1", "TIDEMARK_DATA_DIR": str(folder / "data")}
        with children.child("Tidemark", proxy_port, command, folder / "tidemark.log", environ) as proxy:
            yield model, proxy


def _stay(*servers: Child) -> None:
    """Wait for Ctrl-C or SIGTERM, as long as all servers run."""
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        while True:
            time.sleep(0.5)
            for server in servers:
                server.check()
