"""A release is the same from the same commit, and works where nothing but it is installed; ``make test-release``."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from deploy.release import build
from tests.support.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
EPOCH = "1790000000"
KINDS = ("wheel", "source distribution")
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


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a user who never saw Tidemark."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module", params=KINDS)
def binaries(request: pytest.FixtureRequest, files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but a release, what it needs, and a package called ``proxy``."""
    folder = tmp_path_factory.mktemp("environment")
    uv = [str(Path(sys.executable).parent / "uv"), "--quiet", "--no-config"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(folder)], check=True)
    install = [*uv, "pip", "install", "--python", str(folder / "bin" / "python")]
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
def serving(binaries: Path, home: Path) -> Iterator[str]:
    """A server of the release with the embedded store, until the end of the block; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            [str(binaries / "tidemark"), "serve", "--port", str(port)],
            env=environment(home),
            cwd=home,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: server.poll() is not None or answers(f"{address}/health/readiness"))
        assert server.poll() is None, (home / "log").read_text()
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


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
