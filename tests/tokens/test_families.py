"""Rules of the choice of an encoding: documented, printed, and careful where it is an estimate."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import tiktoken

from tests.tokens.asking import COUNTER, message, request, total
from tidemark.tokens import LocalTokenCounter, encoding_for
from tidemark.tokens.families import FAMILIES, OTHERS, family_for

PAGE = (Path(__file__).parents[2] / "docs" / "counting.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| (`.+) \| `(\w+)` \| (\d+) % \| (exact|estimate) \|$", PAGE, re.MULTILINE)
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def test_the_page_and_the_code_have_the_same_families() -> None:
    """docs/counting.md is what the code does, row by row and in the same order."""
    documented = [(title, encoding, int(percent), kind == "exact") for title, _, encoding, percent, kind in ROWS]
    assert documented == [(one.title, one.encoding, one.percent, one.exact) for one in (*FAMILIES, OTHERS)]


@pytest.mark.parametrize(("title", "examples"), [(row[0], row[1]) for row in ROWS])
def test_every_documented_model_is_of_its_row_s_family(title: str, examples: str) -> None:
    """The names that the page gives as examples are counted as it says."""
    for model in re.findall(r"`(.+?)`", examples):
        assert family_for(model).title == title, model


def test_an_estimate_counts_its_share_more_and_a_cut_keeps_it() -> None:
    """Claude's 120 % hold for texts, messages and cuts; what is cut to N tokens counts N at most."""
    text = "The quick brown fox jumps over the lazy dog. " * 50
    plain, claude = (COUNTER.count_text(text, model) for model in ("gpt-4", "claude-sonnet-4-5"))
    assert claude == -(-plain * 120 // 100)
    for most in range(60):
        assert COUNTER.count_text(COUNTER.cut_text(text, "claude-sonnet-4-5", most), "claude-sonnet-4-5") <= most
    assert total(HELLO, "claude-sonnet-4-5") == 4 + 2 + 3


@pytest.mark.anyio
async def test_a_count_says_whether_it_is_exact(tmp_path: Path) -> None:
    """OpenAI's models are counted exactly, others are estimated, and so is all after a failed tokenizer."""
    assert (await COUNTER.count(request(HELLO), "gpt-4o")).exact
    assert not (await COUNTER.count(request(HELLO), "claude-sonnet-4-5")).exact
    assert not (await COUNTER.count(request(HELLO), "some-name")).exact
    broken = LocalTokenCounter(on_failure="estimate", folder=tmp_path)
    assert not (await broken.count(request(HELLO), "gpt-4o")).exact


def test_harmony_tokenizes_ordinary_text_as_o200k_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiktoken's own o200k_harmony differs in special tokens only, and a text is never taken for one."""
    litellm = importlib.util.find_spec("litellm")
    assert litellm is not None
    assert litellm.origin is not None
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(Path(litellm.origin).parent / "litellm_core_utils" / "tokenizers"))
    harmony = tiktoken.get_encoding("o200k_harmony")
    for text in (
        "<|start|>system<|message|>hi<|end|>",
        "<|channel|>final",
        "<|endoftext|>",
        "plain words, 1234 中文 😀",
    ):
        assert COUNTER.count_text(text, "gpt-oss-20b") == len(harmony.encode_ordinary(text)) > 1
        assert COUNTER.count_text(text, "gpt-4o") == len(harmony.encode_ordinary(text))


def test_ids_of_calls_are_in_estimates_only() -> None:
    """The API bills no ids and no name of a result (measured); other templates may render them."""
    call = {"id": "call_Id8ycVMsW8gdsf7kSXfgAcf1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = message({"role": "assistant", "content": None, "tool_calls": [call]})
    result = message({"role": "tool", "tool_call_id": call["id"], "name": "f", "content": "4"})
    assert COUNTER.count_message(asked, "gpt-4") == 4 + 3 + 1 + 1
    assert COUNTER.count_message(result, "gpt-4") == 4 + 2 + 1
    assert COUNTER.count_message(asked, "llama-3.1-8b") == 4 + 3 + 1 + 1 + 18
    assert COUNTER.count_message(result, "llama-3.1-8b") == 4 + 2 + 1 + 2 + 18


def test_a_prefix_does_not_hide_a_family() -> None:
    """Routers, clouds and fine-tunings write something before the name."""
    assert encoding_for("openrouter/anthropic/claude-3.5-sonnet") == "cl100k_base"
    assert encoding_for("azure/gpt-4o") == encoding_for("ft:gpt-4o-mini:acme::1") == "o200k_base"
    assert family_for("polo1-base") is OTHERS
