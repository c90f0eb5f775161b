"""Recognizes error answers that report a request too long for its model, and reads the window from them.

The pipeline asks it before the first byte goes to the client; it then learns the window, compacts and sends once more.
It does no I/O. The wordings are the providers' own; a comment beside each pattern names its provider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from tidemark.core.frozen import frozen

READ_BYTES = 65_536
"""Only the beginning of a longer answer is read: it is no error envelope."""
NEVER_STATUS = (401, 402, 403, 404, 408, 429)
"""Statuses that never mean an overflow: credentials, credits, unknown models, and rate limits ("Request too large ...
tokens per min")."""
NEVER_CODES = (*NEVER_STATUS, "insufficient_quota", "rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED")
"""Errors of those kinds in answers of status 200 have such a number, or a name."""
OVERFLOW_CODES = ("context_length_exceeded", "exceed_context_size_error", "context_window_exceeded")

_N = r"(?P<{}>\d[\d,]*)"
_WINDOW, _REQUESTED, _TOOLS = _N.format("window"), _N.format("requested"), _N.format("tools")
_WORDINGS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # OpenAI, Azure, DeepSeek, OpenRouter, vLLM: "you requested 5360 tokens (1360 in the messages, ..."
        (
            rf"maximum context length is {_WINDOW} tokens.{{0,80}}?you requested[^(]{{0,40}}\({_REQUESTED}"
            rf"(?: of text input, {_TOOLS} of tool input)?"
        ),
        # vLLM 0.15+, Cloudflare: it counts no further than to what does not fit, hence "at least"
        rf"maximum context length is {_WINDOW} tokens.{{0,80}}?your prompt contains at least {_REQUESTED} input tokens",
        # SGLang states input, reply and the sum of both
        rf"maximum context length of {_WINDOW} tokens\. You requested a total of \d+ tokens: {_REQUESTED} tokens from",
        (
            rf"maximum context length (?:is|of) (?:only )?{_WINDOW} tokens"
            rf"(?:.{{0,120}}?(?:resulted in|you requested|request has|passed)(?: about)? {_REQUESTED} (?!output))?"
        ),
        # vLLM 0.11+: "You passed 5000 input tokens ... the model's context length is only 4096 tokens", or characters
        rf"(?:passed {_REQUESTED} input tokens.{{0,160}}?)?context length is only {_WINDOW} tokens",
        # vLLM's engine
        rf"prompt \(length {_REQUESTED}\) is longer than the maximum model length of {_WINDOW}",
        rf"prompt \(total length {_REQUESTED}\) is too long to fit into the model \(context length {_WINDOW}\)",
        # SGLang, Together
        rf"input \({_REQUESTED} tokens\) is longer than the model's context length \({_WINDOW} tokens\)",
        # Poolside, Volcengine, TensorRT-LLM and others
        (
            rf"(?:input|prompt) length \(?{_REQUESTED}\)? exceeds (?:the )?(?:model's )?maximum "
            rf"(?:context |input |allowed input )?length (?:of )?\(?{_WINDOW}"
        ),
        # OpenAI, GPT-5
        (
            rf"input tokens exceed the configured limit of {_WINDOW} tokens"
            rf"(?:.{{0,80}}?resulted in {_REQUESTED} tokens)?"
        ),
        # Anthropic, the prompt alone and with max_tokens
        rf"prompt is too long: {_REQUESTED} tokens > {_WINDOW} maximum",
        rf"exceed context limit: {_REQUESTED} \+ \d+ > {_WINDOW}",
        # Gemini, Vertex
        rf"input token count (?:\(?{_REQUESTED}\)? )?exceeds the maximum number of tokens allowed \(?{_WINDOW}",
        rf"input token count is {_REQUESTED} but model only supports up to {_WINDOW}",
        # llama.cpp, if a gateway dropped its fields
        rf"request \({_REQUESTED} tokens\) exceeds the available context size \({_WINDOW} tokens\)",
        # Mistral
        rf"contains {_REQUESTED} tokens.{{0,60}}?too large for model with {_WINDOW} maximum context",
        # xAI
        rf"maximum prompt length is {_WINDOW} but the request contains {_REQUESTED} tokens",
        # LM Studio; "n_keep" is no size of the request
        rf"(?:loaded with context length of only |n_keep \(\d+\) >= n_ctx \(){_WINDOW}",
        # text-generation-inference
        rf"must be <= {_WINDOW}\. Given: {_REQUESTED} `inputs` tokens",
        rf"`inputs` must have less than {_WINDOW} tokens\. Given: {_REQUESTED}",
        # GitHub Models, Copilot
        rf"body too large for .{{1,80}}? model\. Max size: {_WINDOW} tokens",
        rf"prompt token count of {_REQUESTED} exceeds the limit of {_WINDOW}",
        # Fireworks
        rf"prompt is too long: {_REQUESTED}, model maximum context length: {_WINDOW}",
        # DashScope, which serves Qwen
        rf"range of input length should be \[\d+, {_WINDOW}\]",
        # Moonshot, which serves Kimi
        rf"exceeded model token limit: {_WINDOW} \(requested: {_REQUESTED}\)",
        # Cerebras
        rf"current length is {_REQUESTED} while limit is {_WINDOW}",
        # llama-cpp-python
        rf"requested tokens \({_REQUESTED}\) exceed context window of {_WINDOW}",
        # TabbyAPI
        rf"length {_REQUESTED} (?:\+ \d+ )?is greater than max_seq_len {_WINDOW}",
        # DS4
        rf"prompt has {_REQUESTED} tokens?, but the configured context size is {_WINDOW} tokens",
        # Cohere
        rf"tokens in the prompt cannot exceed {_WINDOW}",
    )
)
_NUMBERLESS = re.compile(
    # OpenAI, llama.cpp, Ollama
    r"exceeds? (?:the |this model's |maximum )*(?:available )?context (?:window|length|size)"
    r"|prompt is too long|prompt too long"  # Anthropic, Ollama
    r"|input is too long for requested model"  # Bedrock
    r"|greater than the context length"  # LM Studio
    r"|reduce the length of the (?:messages|prompt)"  # OpenAI, Groq
    r"|context[ _]window[ _]exceeded|too many tokens: size limit exceeded"  # litellm, Cohere
    r"|context window exceeds limit|prompt exceeds max length"  # MiniMax, GLM (Z.ai)
    r"|exceed max message tokens|number of input tokens exceeds maximum length",  # Volcengine, Bedrock (Nova)
    re.IGNORECASE,
)


@frozen
class Overflow:
    """A request was too long for its model."""

    window_tokens: int | None = None
    """The model's window as the provider states it; None if it does not."""
    requested_tokens: int | None = None
    """The size of the input as the provider counted it, without the reply if the provider separates them."""


def parse_overflow(status: int, body: bytes) -> Overflow | None:
    """Read an error answer; return None when it reports something else than a full context.

    :param status: HTTP status of the answer
    :param body: its body, any JSON or text
    """
    if status < 400 or status in NEVER_STATUS:
        return None
    text = body[:READ_BYTES].decode("utf-8", "replace")
    errors = list(_errors(text))
    if any(error.get(key) in NEVER_CODES for error in errors for key in ("code", "status", "type")):
        return None
    for error in errors:
        if "n_ctx" in error:  # llama.cpp states both as numbers
            return Overflow(_number(error["n_ctx"]), _number(error.get("n_prompt_tokens")))
    for wording in _WORDINGS:
        if match := wording.search(text):
            groups = match.groupdict()
            requested, tools = _number(groups.get("requested")), _number(groups.get("tools"))
            return Overflow(_number(groups.get("window")), requested and requested + (tools or 0))
    has_code = any(error.get(key) in OVERFLOW_CODES for error in errors for key in ("code", "type"))
    return Overflow() if has_code or _NUMBERLESS.search(text) else None


def _errors(text: str) -> Iterator[Mapping[str, object]]:
    """Yield the error objects of an answer: under ``error``, or the answer itself (vLLM before 0.10)."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    for candidate in value if isinstance(value, list) else [value]:  # Gemini's stream errors come in a list
        if isinstance(candidate, dict):
            nested = candidate.get("error")
            yield {str(key): item for key, item in (nested if isinstance(nested, dict) else candidate).items()}


def _number(value: object) -> int | None:
    """Return a positive number of tokens, written ``4096`` or ``4,096``; None for anything else."""
    if isinstance(value, str):
        value = int(value.replace(",", ""))
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return None
