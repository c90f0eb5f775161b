"""The documentation site, as a visitor's browser sees it: it finds, fits a telephone, and asks nobody else."""

from __future__ import annotations

import mimetypes
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import HEIGHT, PHONE, WIDTH, browser, check_accessible
from tests.docs.pages import ROOT

__all__ = ["browser"]
"""A fixture that this folder shares with tests/browser."""

SITE = ROOT / "build" / "site"
MOST_BYTES = 300_000
"""Of a page with its styles and scripts, before they are compressed; pictures and the search index are apart."""
LONG = {"changelog", "configuration", "operations", "wire", "compaction"}
"""Pages whose own text is longer than what styles and scripts leave of it."""
MOST_SENT_BYTES = 100_000
"""Of each page with the same, as they are transferred."""
MOST_INDEX_BYTES = 250_000
"""Of the search index, which a browser loads once for all pages."""
PAGES = sorted(path.parent.relative_to(SITE).as_posix() for path in SITE.rglob("index.html"))
pytestmark = pytest.mark.site


class Handler(BaseHTTPRequestHandler):
    """Serves the files of the site, compressed, as a web server does with ``gzip_static``."""

    protocol_version = "HTTP/1.1"
    sent: dict[str, int]
    """How many bytes each path took."""
    whole: dict[str, int]
    """How many bytes each path has."""

    def do_GET(self) -> None:
        path = SITE / urlsplit(self.path).path.lstrip("/")
        path = path / "index.html" if path.is_dir() else path
        packed = path.with_name(f"{path.name}.gz")
        body = (packed if packed.is_file() else path).read_bytes() if path.is_file() else b""
        self.send_response(200 if path.is_file() else 404)
        self.send_header("Content-Type", mimetypes.guess_type(path.name)[0] or "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        if packed.is_file():
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)
        self.sent[urlsplit(self.path).path] = len(body)
        self.whole[urlsplit(self.path).path] = path.stat().st_size if path.is_file() else 0

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    """A web server on the loopback interface."""
    assert PAGES, "make site builds the site"
    Handler.sent, Handler.whole = {}, {}
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def page(browser: Browser, server: ThreadingHTTPServer) -> Iterator[Page]:
    """A visitor's page; a request to another address, a missing file and a script's error fail the test."""
    address = f"http://127.0.0.1:{server.server_port}/"
    elsewhere: list[str] = []
    context = browser.new_context(
        base_url=address, viewport={"width": WIDTH, "height": HEIGHT}, reduced_motion="reduce"
    )
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.on("request", lambda request: elsewhere.append(request.url) if not request.url.startswith(address) else None)
    page.on(
        "response", lambda answer: elsewhere.append(f"{answer.status} {answer.url}") if answer.status > 399 else None
    )
    page.on("pageerror", lambda error: elsewhere.append(str(error)))
    yield page
    context.close()
    assert [one for one in elsewhere if not one.startswith(("data:", "blob:"))] == []


def test_a_visitor_searches_a_word_and_follows_a_hit(page: Page) -> None:
    """The search is in the browser: the index is a file of the site."""
    page.goto("/", wait_until="networkidle")
    assert page.get_by_role("heading", level=1).inner_text().startswith("Tidemark")
    page.get_by_role("textbox", name="Search").click()
    page.locator(".md-search-result__meta", has_text="Type to start searching").wait_for()  # the index is read
    page.get_by_role("textbox", name="Search").press_sequentially("retention_tokens")
    hit = page.locator(".md-search-result__link").first
    hit.click()
    page.wait_for_url("**/*?h=*")
    page.get_by_text("retention_tokens").first.wait_for()


def test_pages_are_accessible_and_fit_a_telephone(page: Page) -> None:
    """What axe-core calls serious or critical, and whatever makes a page wider than its screen, fails."""
    for place in ("/", "/troubleshooting/", "/clients/claude-code/"):
        for scheme, width in (("light", WIDTH), ("dark", WIDTH), ("light", PHONE)):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.goto(place)
            check_accessible(page)


@pytest.mark.parametrize(
    "place", ["configuration", "wire", "operations", "compaction", "cost", "adr/0018-bridges-over-chat-completions"]
)
def test_a_page_of_the_reference_fits_a_telephone(page: Page, place: str) -> None:
    """Wide tables and code scroll by themselves."""
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    page.goto(f"/{place}/")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE


def test_no_page_is_heavy(server: ThreadingHTTPServer, page: Page) -> None:
    """The largest page and the home page, loaded anew: document, styles and scripts, and the index by itself."""
    largest = max(PAGES, key=lambda name: (SITE / name / "index.html").stat().st_size)
    for place in ("/", f"/{largest}/"):
        Handler.sent.clear()
        Handler.whole.clear()
        page.context.clear_cookies()
        page.goto(place, wait_until="networkidle")
        shared = sum(size for path, size in Handler.whole.items() if path.endswith((".css", ".js")))
        heavy = {name for name in PAGES if shared + (SITE / name / "index.html").stat().st_size > MOST_BYTES}
        assert heavy <= LONG, shared
        page.get_by_role("textbox", name="Search").focus()
        page.wait_for_load_state("networkidle")
        kinds: defaultdict[str, int] = defaultdict(int)
        for path, size in Handler.sent.items():
            kind = Path(path).suffix or ".html"
            kinds["index" if path.endswith("search_index.json") else kind] += size
        print(f"{place}: {dict(kinds)}")
        assert kinds[".html"] + kinds[".css"] + kinds[".js"] <= MOST_SENT_BYTES
        assert kinds["index"] <= MOST_INDEX_BYTES


def test_every_page_has_a_heading_and_no_markdown_left() -> None:
    """A fence or a list that Python's Markdown did not understand would stand there as text."""
    assert len(PAGES) > 80
    wrong = [name for name in PAGES if "```" in (text := (SITE / name / "index.html").read_text()) or "<h1" not in text]
    assert wrong == []


@pytest.mark.parametrize(("link", "code"), [("other.md#there", 0), ("other.md#gone", 1), ("gone.md", 1)])
def test_a_broken_link_fails_the_build(link: str, code: int, tmp_path: Path) -> None:
    """By the command of the Makefile, with the site's settings."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Page\n\nA [link]({link}).\n", encoding="utf-8")
    (docs / "other.md").write_text("# Other\n\n## There\n", encoding="utf-8")
    settings = (ROOT / "build" / "pages" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[0]
    (tmp_path / "mkdocs.yml").write_text(settings.replace("../site", "site"), encoding="utf-8")
    found = re.search(r"^\t@?(.*mkdocs build .*)--config-file \S+$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found
    command = f"{found[1]} --config-file {tmp_path}/mkdocs.yml"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S602
    assert done.returncode == code, done.stderr


def test_programs_find_the_pages() -> None:
    """``llms.txt`` lists each page, at an address that is there, and ``llms-full.txt`` has all texts."""
    contents = (SITE / "llms.txt").read_text(encoding="utf-8")
    listed = {line.partition("](")[2].partition(")")[0] for line in contents.splitlines() if line.startswith("- [")}
    assert {name.rstrip("/") for name in listed} == {name if name != "." else "index.html" for name in PAGES}
    whole = (SITE / "llms-full.txt").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->" in whole for name in listed)
