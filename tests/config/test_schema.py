"""``tidemark schema``: the JSON Schema accepts and refuses what the loader does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tidemark.cli.main import cli
from tidemark.config import configuration_schema, key_notes, load, shipped_file
from tidemark.config.kinds import Kind, Tokens, Unfit, kind_of, kinds_of
from tidemark.config.loading import LITELLM_SECTIONS, ROOT_KEYS
from tidemark.config.models import ENTRY_KEYS, LaneChoice, ModelInfo
from tidemark.config.reader import MISSING, Reader
from tidemark.config.schema import schema_of
from tidemark.config.sections import ROOT_KINDS, SECTIONS
from tidemark.config.tree import Items, Scalar
from tidemark.core.errors import ConfigError

HOME = {"HOME": "/home/someone"}
SCHEMA: Any = configuration_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
Write = Callable[[str], Path]

URLS = (
    "http://host", "https://host:8443/path?x=1", "HTTP://HOST/", "http://", "http://:80", "http://host:0", "http://u@",
    "http://u:p@host", "ftp://host", "host:80", "http//host", "http://[::1]:80/v1", "https://a.example.com/",
    "https://*.example.com", "https://u@a.example.com", "https://a.example.com/x", "redis://h", "rediss://:pw@h:1/0",
    "redis+cluster://h", "redis+cluster://u:p@a:1,b,[::1]:3/0", "redis+cluster://a:1,b:0", "redis+cluster://a,,b",
    "redis+cluster://,", "rediss+cluster://a:00,b", "redis://",
    "unix:///run/s", "unix://", "unix:/run/s", "unix:s", "embedded", "Embedded",
    "redis+cluster://a:1,b:2/0", "redis+sentinel://u:p@a,b/name", "redis+cluster://a,,b", "redis+sentinel://a:0,b",
    "redis+cluster://a:1,b:2", "redis://a,b", "redis+cluster://a:1,b:0",
)  # fmt: skip
HEADERS = ("x-user-id", "X-User-Id", "host", "Host", " content-length ", "X-Tidemark-Tenant", "x user", "über", "a:b")
WORDS = ("auto", "null", "off", "own", "chat", "clip", "hybrid", "general", "./mine.md", "mine.txt", "mine.pdf", "a/b")
NUMBERS = (-1, 0, 1, 2, 16, 63, 64, 95, 100, 101, 65535, 65536, -0.5, 0.5, 1e-9, 0.999, 1.5, 99.5, 100.5)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((*URLS, *HEADERS, *WORDS, *NUMBERS, "", " ", "\t")),
    st.integers(-(10**9), 10**9),
    st.decimals("-2", "2", places=3).map(float).filter(lambda number: not number.is_integer()),
    st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=8),
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3)


def kinds() -> Iterator[tuple[str, Kind]]:
    """Every kind that a key of the file has."""

    def of(section: Any, name: str) -> Iterator[tuple[str, Kind]]:
        for key, kind in kinds_of(section).items():
            if kind.is_section:
                yield from of(kind.type, f"{name}.{key}")
            else:
                yield f"{name}.{key}", kind

    for name, section in {**SECTIONS, "model_info": ModelInfo}.items():
        yield from of(section, name)
    yield from ROOT_KINDS.items()
    yield from {"window": kind_of(Tokens), "lane": kind_of(LaneChoice)}.items()


KINDS = dict(kinds())


def is_read(kind: Kind, value: object) -> bool:
    """Whether the loader accepts a value; no file and no variable is looked for."""
    if isinstance(value, list):
        node = Items(tuple(Scalar(entry, str(entry), 1) for entry in value), 1)
        return Reader({}).value(node, "key", kind) is not MISSING
    try:
        kind.read(Scalar(value, str(value), 1))  # type: ignore[arg-type]
    except Unfit:
        return False
    return True


def at(path: str) -> Any:
    """The schema of a key by its dotted name."""
    schema = SCHEMA
    for name in path.split("."):
        schema = schema["properties"][name]
    return schema


class TestKeys:
    """The keys of the schema are those of the loader."""

    def test_it_is_a_schema(self) -> None:
        """Of the version that it names."""
        Draft202012Validator.check_schema(SCHEMA)

    @pytest.mark.parametrize("note", list(key_notes()), ids=lambda note: note.name)
    def test_every_key_has_its_default_and_a_description(self, note: Any) -> None:
        """As the documentation lists them."""
        key = at(note.name)
        assert yaml.safe_load(note.default) == key["default"]
        assert len(key["description"]) > len(f"It takes {note.wanted}."), key["description"]
        assert "``" not in key["description"]

    def test_no_key_is_missing_or_more(self) -> None:
        """Also of entries of ``model_list``, and of LiteLLM's sections, which warn only."""
        assert set(SCHEMA["properties"]) == {*ROOT_KEYS, *LITELLM_SECTIONS}
        assert set(SCHEMA["properties"]["model_list"]["items"]["properties"]) == set(ENTRY_KEYS)
        listed = {note.name for note in key_notes()}

        def leaves(schema: Mapping[str, Any], name: str) -> Iterator[str]:
            for key, value in schema["properties"].items():
                dotted = f"{name}.{key}".lstrip(".")
                if "properties" in value:
                    yield from leaves(value, dotted)
                elif "default" in value:
                    yield dotted

        assert set(leaves(SCHEMA, "")) == listed


class TestValues:
    """A value is accepted by both or by neither."""

    @pytest.mark.parametrize("name", KINDS)
    def test_the_known_values(self, name: str) -> None:
        """Each of a table, with every kind."""
        kind = KINDS[name]
        validator = Draft202012Validator(dict(schema_of(kind)) | {"$defs": SCHEMA["$defs"]})
        for value in (*URLS, *HEADERS, *WORDS, *NUMBERS, None, True, False, "", " ", [], ["chat"], [1], ["x-a", None]):
            assert validator.is_valid(value) == is_read(kind, value), value

    @given(name=st.sampled_from(list(KINDS)), value=VALUES)
    @example(name="server.allowed_origins", value=["https://a.example.com", "https://*.example.com"])
    def test_any_value(self, name: str, value: object) -> None:
        """Whatever somebody types."""
        kind = KINDS[name]
        validator = Draft202012Validator(dict(schema_of(kind)) | {"$defs": SCHEMA["$defs"]})
        assert validator.is_valid(value) == is_read(kind, value)


class TestFiles:
    """A whole file."""

    def test_the_shipped_file_is_valid(self) -> None:
        """An editor shows no mistake in it."""
        shipped = yaml.safe_load(shipped_file("tidemark.yaml").read_text(encoding="utf-8"))
        assert list(VALIDATOR.iter_errors(shipped)) == []

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "compaction:\nstore:\nmodel_list:\n",
            "compaction: {models: {'gpt-*': {threshold: 0.9}, 'x': }}",
            "litellm_settings: {drop_params: true}",
            "store: {url: os.environ/STORE, tenants: {0f343b0931126a20f133d67c2b018a3b: {ttl_days: 7}}}",
            "server: {port: os.environ/PORT, allowed_origins: }",
            "model_list: [{model_name: a, litellm_params: {model: openai/a, rpm: 3}, model_info: {mode: chat}}]",
            "model_list: [{model_name: a, litellm_params: {model: b}, compaction: , model_info: {beta_windows: }}]",
        ],
    )
    def test_both_accept_it(self, write: Write, text: str) -> None:
        """What the loader reads is valid."""
        load(write(text), HOME | {"STORE": "redis://h", "PORT": "1"})
        assert list(VALIDATOR.iter_errors(yaml.safe_load(text))) == []

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            "thresold: 1",
            "compaction: {defaults: {thresold: 0.9}}",
            "compaction: {models: {'gpt-*': {summarizer: {mdel: a}}}}",
            "compaction: {models: {'gpt-*': {threshold: 95}}}",
            "server: {port: '8787'}",
            "store: {tenants: {someone: {ttl_days: 7}}}",
            "store: {tenants: {0f343b0931126a20f133d67c2b018a3b: {ttl_days: 0}}}",
            "store: {tenants: {0f343b0931126a20f133d67c2b018a3b: {max_mb: 7}}}",
            "model_name: a",
            "model_list: {a: b}",
            "model_list: [{model_name: a}]",
            "model_list: [{litellm_params: {model: a}}]",
            "model_list: [{model_name: a, litellm_params: {}}]",
            "model_list: [{model_name: a, litellm_params: }]",
            "model_list: [{model_name: a, litellm_params: {model: a}, max_input_tokens: 5}]",
            "model_list: [{model_name: a, litellm_params: {model: a}, model_info: {max_input_tokens: 0}}]",
            "model_list: [{model_name: a, litellm_params: {model: a}, model_info: {dialects: [x]}}]",
            "model_list: [{model_name: a, litellm_params: {model: a}, lane: x}]",
        ],
    )
    def test_both_refuse_it(self, write: Write, text: str) -> None:
        """What an editor underlines does not start, and the other way round."""
        with pytest.raises(ConfigError):
            load(write(text), HOME)
        assert not VALIDATOR.is_valid(yaml.safe_load(text))


def test_the_command_prints_it() -> None:
    """As JSON that an editor reads."""
    done = CliRunner().invoke(cli, ["schema"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == SCHEMA
