"""The site's build drops what no page uses, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.site.smaller import main, smaller_page, smaller_styles

WORDS = {"nav", "nav--primary", "open", "slate", "data-x", "p"}


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        (".nav{color:red}.gone{color:red}", ".nav{color:red}"),
        (".nav,.gone,p{a:b}", ".nav,p{a:b}"),
        (".nav:is(.open,p):hover{a:b}", ".nav:is(.open,p):hover{a:b}"),
        (".nav--primary:hover{a:b}", ".nav--primary:hover{a:b}"),
        (".nav:not(.gone){a:b}", ".nav:not(.gone){a:b}"),
        ('[data-x=slate]{a:b}[data-x="red"]{a:b}', "[data-x=slate]{a:b}"),
        ("@media print{.gone{a:b}}@media print{.nav{a:b}.gone{a:b}}", "@media print{.nav{a:b}}"),
        ('@charset "UTF-8";@keyframes k{0%{a:b}}', '@charset "UTF-8";@keyframes k{0%{a:b}}'),
        ('.nav{a:"}.gone{";b:url(data:x;y,{})}', '.nav{a:"}.gone{";b:url(data:x;y,{})}'),
        ("/* .gone{ */.nav{a:b}", ".nav{a:b}"),
    ],
)
def test_a_rule_stays_if_all_that_it_names_is_there(rules: str, left: str) -> None:
    """Strings, addresses and rules within rules are read as a browser reads them."""
    assert smaller_styles([rules], WORDS) == [left]


def test_a_variable_stays_if_any_file_of_styles_uses_it() -> None:
    """The site's own styles set those of the theme."""
    theme = ".nav{color:var(--a);--b:1;--c:url(data:x;y)}.gone{color:var(--c)}"
    assert smaller_styles([theme, ":root{--a:red;--d:2}"], WORDS) == [".nav{color:var(--a);}", ":root{--a:red;}"]


def test_code_keeps_its_blanks() -> None:
    """Between other elements a line's end is left, which a browser shows as the same blank."""
    page = "<ul>\n    <li>a\n  b</li>\n</ul>\n<pre>  x\n    y</pre>\n\n<p>"
    assert smaller_page(page) == "<ul>\n<li>a\nb</li>\n</ul>\n<pre>  x\n    y</pre>\n<p>"


def test_what_scripts_name_stays(tmp_path: Path) -> None:
    """They add classes to elements that no page has when it is built."""
    (tmp_path / "index.html").write_text('<p class="nav">gone</p>', encoding="utf-8")
    (tmp_path / "script.js").write_text('e.classList.add("open")', encoding="utf-8")
    (tmp_path / "site.css").write_text(".nav{a:b}.open{a:b}.gone{a:b}", encoding="utf-8")
    main(tmp_path)
    assert (tmp_path / "site.css").read_text(encoding="utf-8") == ".nav{a:b}.open{a:b}"
