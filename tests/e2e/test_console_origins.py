"""A form of the console sent to the real command: by each name of this machine, and through a reverse proxy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.clusters import free_ports
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until
from tidemark.terminal.run_file import read

pytestmark = pytest.mark.e2e

SITE = "https://llm.example.com"
TOKEN = "an-operators-token-of-forty-characters.."
SETTINGS = "/console/settings"
WAIT_SECONDS = 60.0


@contextmanager
def serving(folder: Path, config: str = "", token: str = "") -> Iterator[int]:
    """Run ``tidemark serve --port N``; yield N."""
    (folder / "tidemark.yaml").write_text(config)
    own = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMARK_")}
    own |= {"TIDEMARK_DATA_DIR": str(folder / "data"), **({"TIDEMARK_ADMIN_TOKEN": token} if token else {})}
    (port,) = free_ports(1)
    where = ["--config", str(folder / "tidemark.yaml"), "--port", str(port)]
    command = [sys.executable, "-m", "tidemark", "serve", *where]
    with subprocess.Popen(command, env=own, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: read(folder / "data") or server.poll() is not None, WAIT_SECONDS)
            assert server.poll() is None
            yield port
        finally:
            server.send_signal(signal.SIGTERM)


def change_threshold(port: int, host: str, origin: str, more: Mapping[str, str], token: str = "") -> httpx.Response:
    """Open the page of settings and send its form, with the headers that a browser and a proxy would send."""
    sent = {"host": host, **more}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=sent, timeout=60, verify=NO_TLS) as http:
        browsers = {"origin": origin, "sec-fetch-site": "same-origin"}
        cookie = {}
        if token:
            answer = http.post("/console/login", data={"token": token}, headers=browsers)
            if answer.status_code != 303:
                return answer
            cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
        page = http.get(SETTINGS, headers=cookie)
        if page.status_code != 200:
            return page
        cookie = cookie or {"cookie": page.headers["set-cookie"].partition(";")[0]}
        csrf = re.search(r'<meta name="csrf" content="([0-9a-f]+)"', page.text)
        version = re.search(r'name="version" value="(\w+)"', page.text)
        assert csrf is not None
        assert version is not None
        fields = {"csrf": csrf[1], "version": version[1], "threshold": "0.8", "action": "save", "notices": "on"}
        answer = http.post(SETTINGS, data=fields, headers={**browsers, **cookie})
        if answer.status_code == 303:
            assert re.search(
                r"compaction\.defaults\.threshold</th>.*0\.8.*store", http.get(SETTINGS, headers=cookie).text
            )
        return answer


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_setting_is_changed_at_the_port_of_the_command_line(tmp_path: Path, name: str) -> None:
    """By the address that ``serve`` was told, and by the name that people type."""
    with serving(tmp_path) as port:
        place = f"{name}:{port}"
        assert change_threshold(port, place, f"http://{place}", {}).status_code == 303


FORWARDED = {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https"}


@pytest.mark.parametrize("passes_host", [True, False], ids=["with-its-host", "with-our-host"])
def test_behind_a_proxy_a_setting_is_changed_where_the_site_is_allowed(tmp_path: Path, passes_host: bool) -> None:  # noqa: FBT001
    """The token and ``server.allowed_origins`` are what the documentation asks for."""
    with serving(tmp_path, f"server: {{allowed_origins: [{SITE!r}]}}\n", TOKEN) as port:
        host = "llm.example.com" if passes_host else f"127.0.0.1:{port}"
        assert change_threshold(port, host, SITE, FORWARDED, TOKEN).status_code == 303


@pytest.mark.parametrize("passes_host", [True, False], ids=["with-its-host", "with-our-host"])
def test_behind_a_proxy_a_form_of_an_unknown_site_is_refused_with_the_mend(tmp_path: Path, passes_host: bool) -> None:  # noqa: FBT001
    """The words name the site and the setting."""
    with serving(tmp_path, token=TOKEN) as port:
        host = "llm.example.com" if passes_host else f"127.0.0.1:{port}"
        refused = change_threshold(port, host, SITE, FORWARDED, TOKEN)
    assert refused.status_code == 403
    assert "server.allowed_origins" in refused.text
    assert "llm.example.com" in refused.text


def test_behind_a_proxy_without_a_token_the_words_name_the_token(tmp_path: Path) -> None:
    """A visitor from elsewhere is none of this machine, whatever the site."""
    with serving(tmp_path, f"server: {{allowed_origins: [{SITE!r}]}}\n") as port:
        refused = change_threshold(port, "llm.example.com", SITE, FORWARDED)
    assert refused.status_code == 403
    assert "TIDEMARK_ADMIN_TOKEN" in refused.text
