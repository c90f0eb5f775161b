"""Rules of ``tidemark init``: the file can be used as it stands, holds no key, and replaces nothing unasked."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.cli import init as init_module
from tidemark.cli.init import PROVIDERS, LocalServer, init, local_servers, providers_with_keys, starter_file
from tidemark.config import check_report, load
from tidemark.terminal.run_file import announced

KEY = "sk-very-secret-4711"
SERVER = LocalServer("llama.cpp", "http://127.0.0.1:8080/v1", ("smollm2", "/models/my model.gguf", 'a "b": c'))


def served_names(text: str, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The names of the models that a file serves, by the loader that ``serve`` uses."""
    path = folder / "tidemark.yaml"
    path.write_text(text, encoding="utf-8")
    settings = load(path, {"HOME": str(folder), **environ})
    assert settings.warnings == ()
    lines, is_usable = check_report(path, {"HOME": str(folder), **environ})
    assert is_usable, "tidemark check refuses the file:\n" + "\n".join(lines)
    return [entry.name for entry in settings.model_list]


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_each_provider_with_a_key_is_served(tmp_path: Path, provider: object) -> None:
    """Under the names that its clients use; the file names the variable and not the key."""
    environ = {one.variable: KEY for one in PROVIDERS if one is provider}
    (found,) = providers_with_keys(environ)
    text = starter_file([found], [])
    assert served_names(text, tmp_path, environ) == list(found.patterns)
    assert KEY not in text


def test_all_together_are_served(tmp_path: Path) -> None:
    """Every provider, and every model of two servers."""
    environ = {provider.variable: KEY for provider in PROVIDERS}
    other = LocalServer("vLLM", "http://127.0.0.1:8000/v1", ("smollm2", "qwen"))
    names = served_names(starter_file(PROVIDERS, [SERVER, other]), tmp_path, environ)
    assert {*SERVER.models, "qwen", "gpt-*", "claude-*"} <= set(names)
    assert len(names) == len(set(names)), "the first server that has a name serves it"


def test_a_new_file_has_earlier_messages_put_back(tmp_path: Path) -> None:
    """It is off where no file says so; here its user sees it (docs/adr/0026)."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(starter_file([], []), encoding="utf-8")
    assert load(path, {"HOME": str(tmp_path)}).policy_for("gpt-4o").max_recall_tokens is None


def test_without_anything_the_file_is_an_example(tmp_path: Path) -> None:
    """It can be used all the same: with the client's own key."""
    assert served_names(starter_file([], []), tmp_path, {}) == []
    assert providers_with_keys({"OPENAI_API_KEY": ""}) == []


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=30).filter(str.strip))
@example("model_name")
def test_no_name_of_a_model_breaks_the_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """A local server may call its models anything."""
    text = starter_file([], [LocalServer("llama.cpp", SERVER.base_url, (name,))])
    path = tmp_path_factory.mktemp("named") / "tidemark.yaml"
    path.write_text(text, encoding="utf-8")
    assert [entry.name for entry in load(path, {"HOME": str(path.parent)}).model_list] == [name]


def model(name: str, **more: object) -> dict[str, object]:
    """One entry of a list of models."""
    return {"id": name, "object": "model", "created": 1767225600, **more}


def listed(*models: dict[str, object], **more: object) -> dict[str, object]:
    """A list of models, as OpenAI writes it."""
    return {"object": "list", "data": list(models), **more}


PRODUCTS = {
    "Ollama": listed(model("llama3.2:1b", owned_by="library")),
    "llama.cpp": listed(
        model("/models/smollm2.gguf", owned_by="llamacpp", meta={"n_ctx_train": 8192}),
        models=[{"name": "/models/smollm2.gguf", "type": "model", "capabilities": ["completion"]}],
    ),
    "vLLM": listed(model("Qwen/Qwen3-0.6B", owned_by="vllm", root="Qwen/Qwen3-0.6B", max_model_len=40960)),
    "LM Studio": listed(model("qwen3-4b", owned_by="organization_owner"), model("e5", owned_by="organization_owner")),
    "a local server": listed(model("mine", owned_by="me")),
}
"""What each server answers at ``/v1/models``, as its documentation or source shows it."""
OTHERS: dict[str, object] = {
    "another service": {"greeting": "hello"},
    "a list of other things": {"data": [{"id": "invoice-1", "object": "invoice"}], "object": "list"},
    "a page of things": {"data": [{"id": "x"}], "total": 1},
    "no model": listed(),
    "Ollama without a model": {"object": "list", "data": None},
    "a list at the top": [model("x")],
    "a name that is none": listed({"id": 5, "object": "model"}),
}


class Answers(BaseHTTPRequestHandler):
    """A server that answers each path with JSON, and any other path with 404."""

    pages: Mapping[str, object] = {}
    asked: list[str] | None = None

    def do_GET(self) -> None:
        """Answer."""
        if self.asked is not None:
            self.asked.append(self.path)
        body = json.dumps(self.pages.get(self.path)).encode()
        self.send_response(200 if self.path in self.pages else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def answering(asked: list[str] | None = None, /, **pages: object) -> Iterator[int]:
    """A server on a free port: ``v1_models`` is what it answers at ``/v1/models``.

    :param asked: gets the paths that it was asked for
    """
    named = {f"/{name.replace('_', '/')}": page for name, page in pages.items()}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Answers,), {"pages": named, "asked": asked})) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("product", PRODUCTS)
def test_each_server_is_known_by_what_it_answers(tmp_path: Path, product: str) -> None:
    """Whatever its port, and its models are served by the file."""
    with answering(v1_models=PRODUCTS[product]) as port:
        (found,) = local_servers([port])
    assert (found.name, found.base_url) == (product, f"http://127.0.0.1:{port}/v1")
    assert served_names(starter_file([], [found]), tmp_path, {}) == list(found.models)
    assert found.models


def test_an_ollama_whose_models_have_other_owners_is_known_by_its_version() -> None:
    """A model of a person has that person's name as its owner."""
    with answering(v1_models=listed(model("ada/tiny", owned_by="ada")), api_version={"version": "0.9.1"}) as port:
        assert [server.name for server in local_servers([port])] == ["Ollama"]


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_something_else_is_not_written(other: str) -> None:
    """A service may answer at that port and know nothing of models."""
    with answering(v1_models=OTHERS[other]) as port:
        assert local_servers([port]) == []


@contextlib.contextmanager
def redirecting(port: int, *paths: str, status: int = 302) -> Iterator[int]:
    """A server that sends some paths to another port; it answers the others as an unknown product's list."""

    class Redirects(Answers):
        pages: Mapping[str, object] = {"/v1/models": listed(model("mine", owned_by="me"))}

        def do_GET(self) -> None:
            """Redirect, or answer."""
            if self.path not in paths:
                super().do_GET()
                return
            self.send_response(status)
            self.send_header("location", f"http://127.0.0.1:{port}{self.path}")
            self.send_header("content-length", "0")
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Redirects) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_server_that_redirects_is_none_and_nobody_follows(status: int) -> None:
    """Where it points may be another machine, which must not learn of this one."""
    asked: list[str] = []
    with (
        answering(asked, v1_models=PRODUCTS["Ollama"]) as elsewhere,
        redirecting(elsewhere, "/v1/models", status=status) as port,
    ):
        assert local_servers([port]) == []
    assert asked == []


def test_a_server_that_redirects_the_question_for_its_version_is_no_ollama() -> None:
    """Its list of models counts; the Ollama that it points to is another server."""
    asked: list[str] = []
    with (
        answering(asked, api_version={"version": "0.9.1"}) as elsewhere,
        redirecting(elsewhere, "/api/version") as port,
    ):
        assert [server.name for server in local_servers([port])] == ["a local server"]
    assert asked == []


def test_servers_come_in_the_order_of_their_ports() -> None:
    """A closed port is none, and a server that wants a key is none either."""
    with (
        socket.socket() as closed,
        answering() as refusing,
        answering(v1_models=PRODUCTS["vLLM"]) as one,
        answering(v1_models=PRODUCTS["Ollama"]) as other,
    ):
        closed.bind(("127.0.0.1", 0))
        found = local_servers([other, closed.getsockname()[1], refusing, one])
    assert [server.name for server in found] == ["Ollama", "vLLM"]


@pytest.mark.parametrize("dripped", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{"])
def test_a_server_that_drips_is_given_up(dripped: bytes) -> None:
    """Its head or its body never ends, each byte in time; the other servers are found all the same."""
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.sendall(dripped)
                while not ended.wait(0.02):
                    connection.sendall(b" ")

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as silent,
        answering(v1_models=PRODUCTS["LM Studio"]) as port,
    ):
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        found = local_servers([listener.getsockname()[1], silent.getsockname()[1], port], seconds=1.5)
        thread.join(20)  # its connection is ended, too
        ended.set()
        assert not thread.is_alive()
    assert [server.name for server in found] == ["LM Studio"]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Types the command in a folder of its own, on a machine with one key and no server."""
    for provider in PROVIDERS:
        monkeypatch.delenv(provider.variable, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(init_module, "local_servers", list)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_a_file_that_exists_is_left_as_it_is(runner: CliRunner) -> None:
    """The error names both ways out; ``--force`` overwrites it."""
    Path("tidemark.yaml").write_text("mine")
    refused = runner.invoke(init)
    assert refused.exit_code == 1
    assert "--output" in refused.output
    assert "--force" in refused.output
    assert Path("tidemark.yaml").read_text() == "mine"
    assert runner.invoke(init, ["--force"]).exit_code == 0
    assert "OPENAI_API_KEY" in Path("tidemark.yaml").read_text()


def test_what_was_found_is_told_and_what_comes_next(runner: CliRunner) -> None:
    """On standard error, without a key."""
    done = runner.invoke(init, ["--output", "new.yaml"])
    assert done.exit_code == 0
    assert "OPENAI_API_KEY" in done.stderr
    assert "tidemark doctor --config new.yaml" in done.stderr
    assert KEY not in done.output


def test_standard_output_gets_the_file_alone(runner: CliRunner, tmp_path: Path) -> None:
    """So it can be sent into a file."""
    done = runner.invoke(init, ["--output", "-"])
    assert "gpt-*" in served_names(done.stdout, tmp_path, {"OPENAI_API_KEY": KEY})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(runner: CliRunner, tmp_path: Path) -> None:
    """With the system's own words."""
    tmp_path.chmod(0o500)
    assert "cannot be written" in runner.invoke(init).output


def test_a_folder_that_is_not_there_is_an_error(runner: CliRunner) -> None:
    """Nothing is made beside the file."""
    done = runner.invoke(init, ["--output", "nowhere/tidemark.yaml"])
    assert (done.exit_code, "cannot be written" in done.output) == (1, True)


@pytest.mark.parametrize("exists", [False, True])
def test_only_its_owner_reads_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exists: bool) -> None:
    """A key is easily written into it later; whatever the umask, and whoever could read an older file."""
    monkeypatch.setattr(init_module, "local_servers", list)
    path = tmp_path / "tidemark.yaml"
    before = os.umask(0)
    try:
        if exists:
            path.write_text("old")
        assert CliRunner().invoke(init, ["--force", "--output", str(path)]).exit_code == 0
        with announced(tmp_path / "data", "http://127.0.0.1:1"):
            assert (tmp_path / "data/serve.json").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "old" not in path.read_text().splitlines()
