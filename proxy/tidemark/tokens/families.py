"""Maps a model's name to the encoding that counts its tokens; the table equals docs/counting.md.

``counting`` asks here, and ``vocabulary`` loads the encodings.
"""

from __future__ import annotations

import re

from tidemark.core.frozen import frozen

DEFAULT_ENCODING = "o200k_base"


@frozen
class Family:
    """A group of models that are counted alike."""

    title: str
    """The group's title in docs/counting.md."""
    names: str
    """A regular expression that matches in every name of the family."""
    encoding: str
    percent: int = 100
    """Tokens counted for a hundred of the encoding's, if the model's own tokenizer is not available."""
    openai: bool = False
    """Whether OpenAI's API serves the models. It bills no ids of calls; other providers' templates may render them."""
    exact: bool = False
    """Whether this is the model's own tokenizer with published and measured accounting; otherwise an estimate."""


FAMILIES = (
    # The first match decides. Sources and reasons: docs/counting.md.
    Family("gpt-oss", r"gpt-oss", "o200k_harmony"),
    Family("OpenAI, GPT-4o", r"gpt-4o", "o200k_base", openai=True, exact=True),
    Family("OpenAI, newer", r"gpt-4\.\d|gpt-[5-9]|^o[134](-|$)", "o200k_base", openai=True),
    Family("OpenAI, GPT-4 and older", r"gpt-4|gpt-3\.?5", "cl100k_base", openai=True, exact=True),
    Family("OpenAI, texts", r"text-embedding-(3|ada)|(davinci|babbage)-002", "cl100k_base", openai=True, exact=True),
    Family("Claude", r"claude", "cl100k_base", 120),
    Family("Gemini, Gemma", r"gemini|gemma", "o200k_base", 120),
    Family("Llama 1 and 2", r"llama-?[12](?!\d)|codellama|vicuna", "cl100k_base", 125),
    Family("Llama 3 and 4", r"llama", "cl100k_base"),
    Family("Qwen", r"qwen|qwq", "cl100k_base", 110),
    Family("Mistral", r"mistral|mixtral|codestral|ministral|pixtral|magistral|devstral", "cl100k_base", 125),
    Family("DeepSeek", r"deepseek", "cl100k_base", 110),
)
ENCODINGS = {name: Family(f"counted by {name}", r"", name) for name in ("o200k_base", "o200k_harmony", "cl100k_base")}
"""Encodings that an operator may state for a model. The name of a model that is counted alike says the same."""
OTHERS = Family("all others", r"", DEFAULT_ENCODING)


def family_for(model: str) -> Family:
    """Return the family of a model, behind any prefix (``azure/``, ``ft:``, ``us.anthropic.``)."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    if (stated := ENCODINGS.get(name)) is not None:
        return stated
    return next((family for family in FAMILIES if re.search(family.names, name)), OTHERS)


def encoding_for(model: str) -> str:
    """Return the name of the encoding that counts a model's tokens."""
    return family_for(model).encoding
