"""Rules of the module that calls tiktoken: no network, no panic, no slow text, an error that names its mend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.errors import TokenizerFailed
from tidemark.tokens import LocalTokenCounter
from tidemark.tokens import vocabulary as vocabularies
from tidemark.tokens.vocabulary import OWNER, Vocabulary, pieces, vocabulary

TEXTS = st.text(alphabet=st.sampled_from("ab Z9.,'\n\t/\r-éß中😀\u200d\x1c\xa0"), max_size=400)


@settings(max_examples=examples(300))
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


WITHOUT_TIKTOKEN = "import sys; sys.modules['tiktoken'] = None; from tidemark.cli.main import main; main()"
"""The command where ``import tiktoken`` fails."""


def counted_without_tiktoken(folder: Path, on_failure: str) -> subprocess.CompletedProcess[str]:
    """``tidemark count`` of a request with 24 characters of text, in a process that cannot import tiktoken."""
    config, request = folder / "a.yaml", folder / "request.json"
    config.write_text(f"tokenizer: {{on_failure: {on_failure}}}\n")
    request.write_text('{"messages": [{"role": "user", "content": "four letters are a token"}]}')
    command = [sys.executable, "-c", WITHOUT_TIKTOKEN, "count", "--config", str(config), str(request)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_tokens_are_estimated_where_tiktoken_cannot_be_imported(tmp_path: Path) -> None:
    """``estimate`` holds for every failure of the tokenizer, whichever step it fails at (S0-5)."""
    done = counted_without_tiktoken(tmp_path, "estimate")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["input_tokens"], told["exact"]) == (6 + 4 + 3, False)
    assert done.stderr.count("Tokens are estimated at 4 characters each: tiktoken cannot be imported") == 1


def test_without_tiktoken_the_error_names_its_mend_and_a_retry(tmp_path: Path) -> None:
    """FR-5.2.1: nothing is approximated unasked, and the error says that a retry may help."""
    done = counted_without_tiktoken(tmp_path, "error")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Sending the request again may help" in done.stderr
    assert "tokenizer.on_failure to estimate" in done.stderr


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


def test_a_server_that_starts_loads_its_vocabularies_before_any_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request would wait half a second for it."""
    loaded: dict[tuple[str, Path | None], Vocabulary] = {}
    monkeypatch.setattr(vocabularies, "_loaded", loaded)
    LocalTokenCounter().warm(["gpt-4o", "gpt-5", "gpt-3.5-turbo"])
    OWNER.submit(int).result()  # it comes after what waits there
    assert sorted(encoding for encoding, _ in loaded) == ["cl100k_base", "o200k_base"]


def test_a_request_that_comes_while_vocabularies_are_loaded_ahead_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread held what the loading waited for, and waited for the loading: a worker stood still for ever."""
    monkeypatch.setattr(vocabularies, "_loaded", {})
    has_asked, load = threading.Event(), vocabularies._load  # noqa: SLF001 - a slow disk

    def load_late(encoding: str, folder: Path | None) -> Vocabulary:
        assert has_asked.wait(10)
        return load(encoding, folder)

    monkeypatch.setattr(vocabularies, "_load", load_late)
    LocalTokenCounter().warm(["gpt-4o", "gpt-3.5-turbo"])
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(vocabulary, name) for name in ("cl100k_base", "o200k_base") * 2]
        has_asked.set()
        assert {one.result(30).name for one in asked} == {"cl100k_base", "o200k_base"}


def test_what_cannot_be_loaded_ahead_is_told_at_the_first_request(tmp_path: Path) -> None:
    """A server without its files starts all the same."""
    counter = LocalTokenCounter(folder=tmp_path)
    counter.warm(["gpt-4o"])
    with pytest.raises(TokenizerFailed, match="cannot be read"):
        counter.count_text("hello", "gpt-4o")


def test_a_panic_of_the_tokenizer_is_a_tokenizer_failure() -> None:
    """A real panic (1 MB of spaces in one call) becomes our error; an interrupt stays what it is."""
    with pytest.raises(TokenizerFailed, match="Sending it again may help"):
        vocabulary("o200k_base")._encode(" " * 1_000_000)  # noqa: SLF001 - round the pieces on purpose

    class Interrupted:
        def encode_ordinary(self, text: str) -> list[int]:
            raise KeyboardInterrupt

    interrupted: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        Vocabulary("x", interrupted).count("text")


def test_lone_surrogates_are_counted() -> None:
    """JSON can carry half a surrogate pair; it counts as some token instead of failing."""
    assert LocalTokenCounter().count_text("a\ud83d" * 300, "gpt-4o") > 0
    assert LocalTokenCounter().cut_text("a\ud83d" * 30, "gpt-4o", 7)


def test_frequent_words_come_first_in_a_vocabulary() -> None:
    """And a word of several tokens has no rank."""
    counter = LocalTokenCounter()
    the, harbour = (counter.rank_of(word, "gpt-4o") for word in ("the", "harbour"))
    assert the is not None
    assert harbour is not None
    assert the < harbour
    assert counter.rank_of("zeitgeistlich", "gpt-4o") is None


def test_a_missing_vocabulary_ranks_no_word(tmp_path: Path) -> None:
    """Where tokens are estimated, summaries are written all the same."""
    counter = LocalTokenCounter(folder=tmp_path, on_failure="estimate")
    assert counter.rank_of("the", "gpt-4o") is None
