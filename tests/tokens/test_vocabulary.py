"""Rules of the door to tiktoken: no network, no panic, no slow text, an error that names its mend."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core.errors import TokenizerFailed
from proxy.tokens import LocalTokenCounter
from proxy.tokens import vocabulary as vocabularies
from proxy.tokens.vocabulary import Vocabulary, pieces, vocabulary

TEXTS = st.text(alphabet=st.sampled_from("ab Z9.,'\n\t/\r-éß中😀\u200d\x1c\xa0"), max_size=400)


@settings(max_examples=300)
@given(TEXTS, st.integers(5, 60), st.sampled_from(["o200k_base", "cl100k_base"]))
def test_pieces_do_not_change_the_count(text: str, limit: int, encoding: str) -> None:
    """Pieces make up the text; where each ends at a space or a line end, their tokens are the text's."""
    parts = list(pieces(text, limit))
    assert "".join(parts) == text
    assert all(0 < len(part) <= limit for part in parts)
    found = vocabulary(encoding)
    if all(len(part) < limit for part in parts[:-1]):
        assert sum(map(found.count, parts)) == found.count(text)


def test_a_missing_vocabulary_is_an_error_with_its_mend(tmp_path: Path) -> None:
    """FR-5.2.1: no file, no count, no download; an altered file is refused and left where it is."""
    counter = LocalTokenCounter(folder=tmp_path)
    with pytest.raises(TokenizerFailed, match="install Tidemark's locked dependencies"):
        counter.count_text("hello", "gpt-4o")
    altered = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    altered.write_bytes(b"YQ== 0\n")
    with pytest.raises(TokenizerFailed):
        counter.count_text("hello", "gpt-4o")
    assert altered.exists()


def test_estimates_are_opt_in_and_warned_of_once(tmp_path: Path) -> None:
    """``estimate`` takes four characters for a token and says so one time."""
    warnings: list[str] = []
    counter = LocalTokenCounter(on_failure="estimate", on_warning=warnings.append, folder=tmp_path)
    assert counter.count_text("hello world", "gpt-4o") == 3
    assert counter.cut_text("hello world", "gpt-4o", 2) == "hello wo"
    assert len(warnings) == 1


def test_loading_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's own cache folder is set aside only while a vocabulary is read."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "elsewhere")
    monkeypatch.setattr(vocabularies, "_loaded", {})
    assert vocabulary("cl100k_base").count("hello") == 1
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "elsewhere"


def test_loading_takes_nothing_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread that walks the environment meanwhile, looking for proxies say, would fail with a KeyError."""
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setattr(vocabularies, "_loaded", {})
    taken: list[str] = []
    monkeypatch.setattr(type(os.environ), "__delitem__", lambda _, name: taken.append(name))
    assert vocabulary("cl100k_base").count("hello") == 1
    assert taken == []


def test_a_vocabulary_is_loaded_once_however_many_threads_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's first requests come together; each load costs half a second."""
    monkeypatch.setattr(vocabularies, "_loaded", {})
    with ThreadPoolExecutor(8) as pool:
        assert len({id(one) for one in pool.map(vocabulary, ["cl100k_base"] * 8)}) == 1


def test_a_panic_of_the_tokenizer_is_a_tokenizer_failure() -> None:
    """A real panic (1 MB of spaces in one call) becomes our error; an interrupt stays what it is."""
    with pytest.raises(TokenizerFailed):
        vocabulary("o200k_base")._encode(" " * 1_000_000)  # noqa: SLF001 - round the pieces on purpose

    class Interrupted:
        def encode_ordinary(self, text: str) -> list[int]:
            raise KeyboardInterrupt

        def decode_bytes(self, tokens: list[int]) -> bytes:
            return b""

    with pytest.raises(KeyboardInterrupt):
        Vocabulary("x", Interrupted()).count("text")


def test_lone_surrogates_are_counted() -> None:
    """JSON can carry half a surrogate pair; it counts as some token instead of failing."""
    assert LocalTokenCounter().count_text("a\ud83d" * 300, "gpt-4o") > 0
    assert LocalTokenCounter().cut_text("a\ud83d" * 30, "gpt-4o", 7)
