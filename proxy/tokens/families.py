"""Which encoding a model's tokens are counted in, and how sure that is: one table, the same as docs/counting.md.

Below ``counting``, which asks by the model's name, and beside ``vocabulary``, which loads what is named here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

DEFAULT_ENCODING = "o200k_base"


@dataclass(frozen=True, slots=True)
class Family:
    """Models that are counted alike."""

    title: str
    """As docs/counting.md calls them."""
    names: str
    """A regular expression that a name of the family holds."""
    encoding: str
    percent: int = 100
    """Tokens counted for a hundred of the encoding's, where the model's own tokenizer cannot be had."""
    openai: bool = False
    """Served by OpenAI's API, which bills no ids of calls; other providers' templates may render them."""
    exact: bool = False
    """The model's own tokenizer, and accounting that was published and measured for it; an estimate otherwise."""


FAMILIES = (
    # The first that fits decides. Sources and reasons: docs/counting.md.
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
OTHERS = Family("all others", r"", DEFAULT_ENCODING)


def family_for(model: str) -> Family:
    """The family of a model, behind any prefix (``azure/``, ``ft:``, ``us.anthropic.``)."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    return next((family for family in FAMILIES if re.search(family.names, name)), OTHERS)


def encoding_for(model: str) -> str:
    """The name of the encoding that a model's tokens are counted in."""
    return family_for(model).encoding
