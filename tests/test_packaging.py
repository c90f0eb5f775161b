"""What is declared, locked, documented and installed agrees, and names no machine."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tidemark
from deploy.release import notice

ROOT = Path(__file__).parent.parent
LOCKS = ("runtime", "local", "dev")
PERMISSIVE = re.compile(r"MIT|BSD|Apache|PSF|Python Software Foundation|CNRI|ISC|MPL|Mozilla Public License")
"""Licences of what is shipped. The last two bind changes of the library's own files only."""
START_UP = ("sitecustomize.py", "usercustomize.py")
PINNED = re.compile(r"^([a-z0-9.-]+)==([^ ]+)", re.MULTILINE)
DOCUMENTED = re.compile(r"^\| ([a-z][a-z0-9-]+) \| (\d[^ ]*) \|", re.MULTILINE)


def locked(name: str) -> dict[str, str]:
    """Name and version of each package in one lock."""
    return dict(PINNED.findall((ROOT / "requirements" / f"{name}.txt").read_text()))


def declared() -> set[str]:
    """Every direct dependency: runtime, extras and groups."""
    pyproject: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *pyproject["dependency-groups"].values(),
    ]
    return {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower() for group in groups for line in group}


def test_the_installed_version_is_the_one_in_the_source() -> None:
    """``tidemark.__version__`` is the only place where the version is written."""
    assert importlib.metadata.version("tidemark-proxy") == tidemark.__version__


def test_every_direct_dependency_is_documented_at_its_locked_version() -> None:
    """A dependency without a reason, and a reason without its dependency, are both mistakes."""
    documented = dict(DOCUMENTED.findall((ROOT / "docs" / "dependencies.md").read_text()))
    pins = locked("dev")
    assert documented == {name: pins[name] for name in declared()}


def test_the_locks_agree_with_each_other() -> None:
    """Each lock is complete, and a larger one holds the smaller at the same versions."""
    assert locked("runtime").items() <= locked("local").items() <= locked("dev").items()


def test_the_image_and_the_checkout_have_what_traces_need() -> None:
    """A container exports traces as soon as its environment names a collector."""
    pyproject: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extra = {line.partition(">=")[0] for line in pyproject["project"]["optional-dependencies"]["otel"]}
    assert extra <= locked("runtime").keys()
    assert "requirements/runtime.txt" in (ROOT / "deploy" / "Dockerfile").read_text()


@pytest.mark.parametrize("name", [*LOCKS, "site"])
def test_every_package_of_a_lock_has_hashes(name: str) -> None:
    """So nothing is installed that was not locked."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    blocks = re.split(r"(?m)^(?=[a-z0-9])", text)[1:]
    assert len(blocks) == len(PINNED.findall(text))
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("name", [*LOCKS, "site"])
def test_a_lock_names_no_host_and_nothing_that_compiles(name: str) -> None:
    """A lock holds names and hashes only; llama-cpp-python has no wheel and must stay out."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    assert "--find-links" not in text
    assert "llama-cpp-python" not in locked(name)


def test_no_harmful_release_of_litellm_is_locked() -> None:
    """1.82.7, 1.82.8 and 1.107.0 were compromised; 1.106.2 fails every request with tools."""
    assert locked("runtime")["litellm"] not in {"1.82.7", "1.82.8", "1.106.2", "1.107.0"}


def licences_of(name: str) -> str:
    """What an installed package says of its licence, in any of the three forms that metadata has."""
    about = importlib.metadata.metadata(name)
    classifiers = [line for line in about.get_all("Classifier", []) if line.startswith("License ::")]
    said = [*about.get_all("License-Expression", []), " ".join(classifiers), *about.get_all("License", [])]
    return next((text[:100] for text in said if text), "")


def test_what_is_shipped_has_a_permissive_licence() -> None:
    """With the extras of the demo and of traces."""
    licences = {name: licences_of(name) for name in locked("local") if installed(name)}
    assert len(licences) > 80
    assert {name: text for name, text in licences.items() if not PERMISSIVE.search(text) or "GPL" in text} == {}


def test_no_locked_package_runs_code_when_python_starts() -> None:
    """A compromised litellm did so by a file in site-packages that each start of Python reads."""
    files = [(name, file) for name in locked("dev") if installed(name) for file in importlib.metadata.files(name) or ()]
    assert len(files) > 10_000
    hooks = [(name, str(file)) for name, file in files if file.suffix == ".pth" or file.name in START_UP]
    assert hooks == []


def installed(name: str) -> bool:
    """Whether a package is here: some are locked for other systems."""
    return next(iter(importlib.metadata.distributions(name=name)), None) is not None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_the_package_its_types_and_the_configuration(wheel: Path) -> None:
    """An installed Tidemark finds in ``tidemark/_config`` what a checkout has in ``config/``; the leash is there once.

    Store and demo start it by its path, which no import tells of.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    # `proxy` is another project's, and the second is the distribution's own data.
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"tidemark", "tidemark_proxy"}
    config = ROOT / "config"
    shipped = {f"tidemark/_config/{path.relative_to(config).as_posix()}" for path in config.rglob("*.yaml")}
    assert "tidemark/_config/presets/agent.yaml" in shipped
    assert [name for name in names if name.endswith("/die_with_parent.py")] == [
        "tidemark/store/embedded/die_with_parent.py"
    ]
    assert {"tidemark/py.typed", "tidemark/core/planning/plan.py", *shipped} <= names


def test_the_page_of_the_package_index_has_absolute_links_that_the_tag_will_have(wheel: Path) -> None:
    """An index has no files beside the page, so a link or a picture there is one of the repository, at the release."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        links = re.findall(r"\]\(([^)\s]+)", archive.read(name).decode())
    tag = f"v{tidemark.__version__}"
    own = re.compile(
        rf"https://(?:github\.com/tidemark-proxy/tidemark/blob/{tag}|raw\.githubusercontent\.com/tidemark-proxy/tidemark/{tag})/([^#]+)"
    )
    paths = [found[1] for link in links if (found := own.match(link))]
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert [link for link in links if not own.match(link) and not link.startswith(("https://", "#"))] == []


def test_the_notice_has_the_licence_of_each_package_that_is_shipped() -> None:
    """``make notice`` writes it from the metadata of what is locked."""
    assert (ROOT / "NOTICE").read_text("utf-8") == notice.notice()
