"""YAML itself: what is wrong is explained with its line, and no file brings the reader down."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.config import Settings, check_report, load
from tidemark.core.errors import ConfigError

HOME = {"HOME": "/home/someone"}


def problems_of(path: Path, content: str | bytes) -> str:
    """What is said of a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError) as caught:
        load(path, HOME)
    return str(caught.value).replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("content", "says", "mend"),
    [
        ("server:\n\tport: 1", "a.yaml:2: this is not YAML", "indent with spaces"),
        ("server:\n    port: 1\n  host: x", "a.yaml:3: this line begins after 2 spaces, and line 2", "alike"),
        ("a:\n  - b: 1\n\n   c: {}", "a.yaml:4: this line begins after 3 spaces, and line 2 before it after 2", ""),
        ("a:\n  - b: 1\n - c: 2", "a.yaml:3: this line begins after 1 space, and line 2", "alike"),
        ("  a: 1\n# x\nb: 2", "a.yaml:3: this line begins after 0 spaces, and line 1", "alike"),
        ("a: 1\n  b: 2", "a.yaml:2: this line is indented more than line 1, which has a value already", "alike"),
        ('data_dir: "C:\\Users\\me"', "a.yaml:1: this is not YAML", "put a path of Windows in single quotes"),
        ('data_dir: "C:\\data"', "a.yaml:1: this is not YAML", "put a text with backslashes in single quotes"),
        ("server: {port: 1", "a.yaml:1: this is not YAML", ""),
        ("a: b: c", "a.yaml:1: this is not YAML", "put a text that holds ': ' in quotes"),
        ("compaction:\n  models:\n    claude-*: {}\n    *: {}", "a.yaml:4: this is not YAML", "in quotes"),
        ("compaction:\n  models: {*any: {}}", "a.yaml:2: this is not YAML", "in quotes"),
        ("upstream: @x", "a.yaml:1: this is not YAML", "in quotes"),
        ("server: {}\n---\nserver: {}", "a.yaml:2: this is not YAML", "remove the second"),
        ("a:\n  b: 1\n  b: 2", 'a.yaml:3: the key "b" is repeated, first on line 2', "keep one"),
        ("- a\n- b", "a.yaml:1: the file must be a mapping", ""),
        ("just words", "a.yaml:1: the file must be a mapping", ""),
        ("server: &s {port: *s}", "a.yaml:1: an alias is inside of the value that it names", ""),
        ("auth: {mode: !!python/name:os x}", 'a.yaml:1: auth.mode is "x"', "the tag !!python/name:os"),
        ("server: {? [a] : 1}", "a.yaml:1: a key must be a plain text", ""),
        ("server: {<<: 1}", 'a.yaml:1: "<<" takes a mapping', ""),
        (b"server: {}\n# caf\xe9\n", "a.yaml:2: the file is not UTF-8 text", "save it as UTF-8"),
        ("server: {}\n\x07", "a.yaml:2: this is not YAML", "remove the control character"),
        ("[" * 20_000, "a.yaml:1: lists and mappings are nested too deeply", ""),
        ("#" * 5_000_000, "a.yaml:1: the file is longer than", ""),
    ],
)  # fmt: skip
def test_what_is_no_yaml_is_explained(tmp_path: Path, content: str | bytes, says: str, mend: str) -> None:
    """Line, reason and, for the usual slips, the mend."""
    message = problems_of(tmp_path / "a.yaml", content)
    assert says in message
    assert mend in message


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the system's reason; a folder is no file either."""
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="the file cannot be read"):
            load(path, HOME)


def test_aliases_and_merge_keys_are_yaml(tmp_path: Path) -> None:
    """A shared block is written once; own keys win over merged ones."""
    path = tmp_path / "a.yaml"
    path.write_text("""
model_list:
  - &first {model_name: a, litellm_params: &p {model: openai/a, timeout: 5}}
  - <<: *first
    model_name: b
    litellm_params: {<<: [*p], model: openai/b}
""")
    second = load(path, HOME).model_list[1]
    assert (second.name, second.litellm_params) == ("b", {"timeout": 5, "model": "openai/b"})


def test_a_few_lines_of_aliases_do_not_fill_the_memory(tmp_path: Path) -> None:
    """The "billion laughs" are refused at once."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    assert "the aliases make more than 100,000 values" in problems_of(tmp_path / "a.yaml", "\n".join(lines))


WORDS = """model_list model_name litellm_params model_info compaction defaults models store url server port
threshold summarizer upstream data_dir lane model << 1 ~"""
KEYS = st.sampled_from(["", "\t", *WORDS.split()])
ODDITIES = """1 -1 0.5 .inf .nan 1e999 1_000 0x_ 0b 08 1:30 yes ~ = os.environ/NO os.environ/ auto embedded redis://[
http://h:x '*' *a "\\0" "\\ud800" 2024-02-01"""
TAGGED = ("&a 1", "!!int x", "!!bool x", "! ''", "!!set {a}", "!!binary x", "|\n  x", "# c", "9" * 5000)
SCALARS = st.sampled_from([*ODDITIES.split(), *TAGGED]) | st.text(max_size=8)
YAML = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(KEYS | SCALARS, inner), max_size=4).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=12,
)
FILES = (
    st.lists(st.tuples(KEYS, YAML), max_size=6).map(lambda pairs: "\n".join(f"{key}: {value}" for key, value in pairs))
    | YAML
    | st.text(max_size=60)
)


@given(FILES.map(lambda text: text.encode(errors="surrogatepass")) | st.binary(max_size=60))
@example(b"store: {url: 'redis://[::1'}")
@example(b"server: {port: !!int x}")
@example(b"server: {port: 1:99:99}")
@example(b"store: |\n  x\n  y\nmodel_list: []")
@example(b'"a\\nb": 1')
def test_any_file_gives_settings_or_a_configuration_error(content: bytes) -> None:
    """Nothing else ever leaves ``load``, every line of an error names file and line, and ``check`` agrees."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.yaml"
        path.write_bytes(content)
        lines, ok = check_report(path, HOME)
        assert lines
        try:
            settings = load(path, HOME)
        except ConfigError as error:
            refused = str(error)
        else:
            refused = ""
            assert isinstance(settings, Settings)
        assert ok is (not refused)
        assert all(line.startswith(f"{path}:") for line in refused.splitlines())


@pytest.mark.parametrize("written", ["on", "off", "auto", '"off"'])
def test_a_word_that_looks_like_a_boolean_is_the_word(tmp_path: Path, written: str) -> None:
    """YAML 1.1 has ``off`` for false; nobody should need quotes for it."""
    path = tmp_path / "a.yaml"
    path.write_text(f"compaction: {{defaults: {{cache_marks: {written}}}}}")
    assert load(path, HOME).compaction.defaults.cache_marks == written.strip('"')


def test_a_boolean_in_the_place_of_a_word_is_refused_as_it_was_typed(tmp_path: Path) -> None:
    """With the words that there are."""
    said = problems_of(tmp_path / "a.yaml", "compaction: {defaults: {cache_marks: yes}}")
    assert "yes" in said
    assert "one of auto, on, off" in said
