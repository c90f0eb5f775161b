"""Which chat templates are strict, by templates that were written for this test as published ones are built."""

from __future__ import annotations

import pytest

from tests.support.strict_templates import ALTERNATING, DROPPING, FIRST_ONLY, LAST_ONLY, LENIENT
from tidemark.upstream.chat_templates import MOST_TEMPLATE_CHARS, is_about_roles, is_strict_template


@pytest.mark.parametrize(
    "template",
    [FIRST_ONLY, ALTERNATING, DROPPING, LAST_ONLY],
    ids=["first only", "alternating", "dropping", "last only"],
)
def test_a_template_that_refuses_or_drops_is_strict(template: str) -> None:
    """It says so itself, or one of two system messages is not in what it writes."""
    assert is_strict_template(template)


@pytest.mark.parametrize(
    "template",
    [
        LENIENT,
        "{% for",
        "{{ unknown.member.of.it }}",
        "{{ messages | no_filter }}",
        "{{ 1 / 0 }}",
        "{{ raise_exception('x') }}" + " " * MOST_TEMPLATE_CHARS,
        "{% macro a(n) %}{{ a(n) }}{% endmacro %}{{ a(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{% for a in b %}" * 25 + "{% endfor %}" * 25,
        "{{ cycler() }}",
        "{{ 'a' * 10 ** 13 }}",
    ],
    ids=[
        "lenient",
        "no template",
        "unknown name",
        "unknown filter",
        "error",
        "huge",
        "endless",
        "unsafe",
        "nested",
        "no arguments",
        "vast",
    ],
)
def test_what_cannot_be_tried_is_lenient(template: str) -> None:
    """Then the server's own refusals tell."""
    assert not is_strict_template(template)


@pytest.mark.parametrize(
    ("words", "is_about"),
    [
        ("Jinja Exception: System message must be at the beginning.", True),
        ("Conversation roles must alternate user/assistant/user/assistant/...", True),
        ("A conversation must start with a user message.", True),
        ("After the optional system message, conversation roles must alternate", True),
        ("Unexpected role 'system' after role 'user'", True),
        ("This model's maximum context length is 4096 tokens", False),
        ("Invalid API key", False),
        ("messages with role 'tool' must follow calls", True),
        ("Your IAM role has no rights", False),
        ("After the (optional) system message(s), user and assistant roles should be alternating.", True),
        ("invalid params, invalid chat setting (2013)", True),
        ("invalid params, chat content has invalid message role: system (2013)", True),
        ("The messages parameter is illegal. Please check the documentation.", True),
        ("Incorrect role information", True),
        ("invalid params, context window exceeds limit (2013)", False),
    ],
)
def test_a_refusal_that_names_roles_may_be_about_them(words: str, *, is_about: bool) -> None:
    """Words of llama.cpp, vLLM, Bedrock, Mistral, Perplexity, MiniMax and GLM."""
    assert is_about_roles(words.encode()) is is_about
