"""Every provider's own way of saying that a request is too long, as their servers word it."""

from __future__ import annotations

import json

import pytest

from tidemark.upstream.overflow import Overflow, parse_overflow

WORDINGS = [
    pytest.param(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 10361 "
        "tokens. Please reduce the length of the messages.",
        Overflow(8192, 10361),
        id="openai",
    ),
    pytest.param(
        "This model's maximum context length is 4097 tokens. However, you requested 5360 tokens (1360 in the "
        "messages, 4000 in the completion).",
        Overflow(4097, 1360),
        id="openai-completion",
    ),
    pytest.param(
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300006 tokens.",
        Overflow(272000, 300006),
        id="openai-gpt-5",
    ),
    pytest.param(
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        Overflow(),
        id="openai-responses",
    ),
    pytest.param(
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 150123 tokens",
        Overflow(131072, 150123),
        id="openrouter",
    ),
    pytest.param(
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
        "37000 tokens: 5000 tokens from the input messages and 32000 tokens for the completion. Please reduce the "
        "number of tokens in the input messages or the completion to fit within the limit.",
        Overflow(32768, 5000),
        id="sglang",
    ),
    pytest.param("prompt is too long: 210000 tokens > 200000 maximum", Overflow(200000, 210000), id="anthropic"),
    pytest.param(
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        Overflow(200000, 190000),
        id="anthropic-with-reply",
    ),
    pytest.param(
        "The input token count (1234567) exceeds the maximum number of tokens allowed (1048576).",
        Overflow(1048576, 1234567),
        id="gemini",
    ),
    pytest.param(
        "the request exceeds the available context size. try increasing the context size",
        Overflow(),
        id="llama.cpp-2025",
    ),
    pytest.param(
        "'max_tokens' or 'max_completion_tokens' is too large: 1000. This model's maximum context length is "
        "4096 tokens and your request has 3500 input tokens (1000 > 4096 - 3500).",
        Overflow(4096, 3500),
        id="vllm",
    ),
    pytest.param(
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        Overflow(4096, 5000),
        id="vllm-engine",
    ),
    pytest.param(
        "You passed 5000 input tokens and requested 0 output tokens. However, the model's context length is "
        "only 4096 tokens",
        Overflow(4096, 5000),
        id="vllm-0.11",
    ),
    pytest.param("the input length exceeds the context length", Overflow(), id="ollama"),
    pytest.param(
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        Overflow(32768, 40000),
        id="mistral",
    ),
    pytest.param(
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        Overflow(131072, 537812),
        id="xai",
    ),
    pytest.param("Input is too long for requested model.", Overflow(), id="bedrock"),
    pytest.param(
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with "
        "context length of only 4096 tokens",
        Overflow(4096),
        id="lm-studio",
    ),
    pytest.param(
        "This model's maximum context length is 128000 tokens. However, you requested 65535 output "
        "tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 "
        "tokens.",
        Overflow(128000, 62466),
        id="vllm-0.15",
    ),
    pytest.param(
        "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens "
        "and your prompt contains 99999 characters (more than 57536 characters, which is the upper bound"
        " for 3996 input tokens).",
        Overflow(4096),
        id="vllm-0.15-characters",
    ),
    pytest.param(
        "You passed 99999 input characters and requested 500 output tokens. However, the model's context"
        " length is only 4096 tokens, resulting in a maximum input length of 3596 tokens",
        Overflow(4096),
        id="vllm-0.11-characters",
    ),
    pytest.param(
        "The prompt (total length 5000) is too long to fit into the model (context length 4096). Make "
        "sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
        Overflow(4096, 5000),
        id="vllm-images",
    ),
    pytest.param(
        "The input (265330 tokens) is longer than the model's context length (262144 tokens).",
        Overflow(262144, 265330),
        id="sglang-input",
    ),
    pytest.param(
        "This endpoint's maximum context length is 262000 tokens. However, you requested about 263390 "
        "tokens (658 of text input, 732 of tool input, 262000 in the output).",
        Overflow(262000, 1390),
        id="openrouter-tools",
    ),
    pytest.param(
        "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
        Overflow(131040, 131393),
        id="poolside",
    ),
    pytest.param(
        "Input length (265330) exceeds model's maximum context length (262144).",
        Overflow(262144, 265330),
        id="compatible",
    ),
    pytest.param(
        "The prompt is too long: 264613, model maximum context length: 262141",
        Overflow(262141, 264613),
        id="fireworks",
    ),
    pytest.param(
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
        Overflow(30720),
        id="qwen",
    ),
    pytest.param(
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 135244)",
        Overflow(131072, 135244),
        id="kimi",
    ),
    pytest.param(
        "prompt token count of 135000 exceeds the limit of 128000",
        Overflow(128000, 135000),
        id="copilot",
    ),
    pytest.param(
        "invalid params, context window exceeds limit (2013)",
        Overflow(),
        id="minimax",
    ),
    pytest.param(
        "Prompt exceeds max length",
        Overflow(),
        id="glm",
    ),
    pytest.param(
        "Please reduce the length of the messages or completion. Current length is 42328 while limit is 40000",
        Overflow(40000, 42328),
        id="cerebras",
    ),
    pytest.param(
        "Prompt has 40,000 tokens, but the configured context size is 32,768 tokens",
        Overflow(32768, 40000),
        id="ds4",
    ),
    pytest.param(
        "Total tokens of image and text exceed max message tokens. Request id: 02171",
        Overflow(),
        id="volcengine",
    ),
    pytest.param(
        "Requested tokens (1017) exceed context window of 512",
        Overflow(512, 1017),
        id="llama-cpp-python",
    ),
    pytest.param(
        "Request length 71599 + 2048 is greater than max_seq_len 65536",
        Overflow(65536, 71599),
        id="tabby",
    ),
    pytest.param(
        "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
        Overflow(4095, 5000),
        id="tgi-input",
    ),
    pytest.param(
        "The input token count exceeds the maximum number of tokens allowed (1048576).",
        Overflow(1048576),
        id="gemini-2.5",
    ),
    pytest.param(
        "Unable to submit request because the input token count is 1100000 but model only supports up to 1048576.",
        Overflow(1048576, 1100000),
        id="vertex",
    ),
    pytest.param(
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length",
        Overflow(),
        id="bedrock-nova",
    ),
    pytest.param(
        "Cannot truncate prompt with n_keep (6244) >= n_ctx (4096)",
        Overflow(4096),
        id="lm-studio-n-keep",
    ),
]


@pytest.mark.parametrize(("message", "expected"), WORDINGS)
def test_each_wording_is_recognised(message: str, expected: Overflow) -> None:
    """The numbers are read where they are told: in an envelope, in a list of them, in bare text."""
    envelope = {"error": {"message": message, "type": "invalid_request_error", "code": 400}}
    assert parse_overflow(400, json.dumps(envelope).encode()) == expected
    assert parse_overflow(400, json.dumps([envelope]).encode()) == expected
    assert parse_overflow(400, message.encode()) == expected


def test_llama_cpp_states_its_numbers_as_fields() -> None:
    """llama.cpp since 2025-09: n_prompt_tokens and n_ctx beside a message."""
    body = (
        b'{"error":{"code":400,"message":"the request exceeds the available context size","type":'
        b'"exceed_context_size_error","n_prompt_tokens":3031,"n_ctx":2048}}'
    )
    assert parse_overflow(400, body) == Overflow(2048, 3031)


def test_the_code_alone_is_enough() -> None:
    """OpenAI's code counts whatever the message says."""
    body = b'{"error":{"message":"zu lang","type":"invalid_request_error","code":"context_length_exceeded"}}'
    assert parse_overflow(400, body) == Overflow()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b'{"error":{"code":"context_length_exceeded"}}'),
        (429, b'{"error":{"message":"Request too large for gpt-4o: Limit 30000, Requested 40000"}}'),
        (429, b'{"error":{"message":"prompt is too long: 2 tokens > 1 maximum"}}'),
        (400, b'{"error":{"message":"max_tokens is too large: 100000. At most 16384 are supported"}}'),
        (400, b'{"error":{"message":"Unknown role","code":"invalid_value"}}'),
        (402, b'{"error":{"message":"Prompt tokens limit exceeded: 27842 > 12345. To increase, visit the settings"}}'),
        (
            402,
            (
                b'{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to '
                b'64000 tokens, but can only afford 5300."}}'
            ),
        ),
        (
            413,
            (
                b'{"error":{"message":"Request too large for model `m` in organization `o` on tokens per minute (TPM): '
                b'Limit 12000, Requested 15210, please reduce your message size and try again.","type":"tokens"}}'
            ),
        ),
        (400, b'{"message":"ThrottlingException: Too many tokens, please wait before trying again."}'),
        (400, b'{"error":{"message":"Range of max_tokens should be [1, 8192]"}}'),
        (
            400,
            b'{"error":{"message":"max_completion_tokens is too large: 262144. This model supports at most 256000"}}',
        ),
        (
            400,
            b'{"error":{"message":"max_tokens: 250000 > 128000, the maximum allowed number of output tokens"}}',
        ),
        (400, b'{"error":{"message":"maxOutputTokens value of 100000 but the supported range is from 1 to 65537"}}'),
        (422, b'{"error":"Input validation error: `max_new_tokens` must be <= 192. Given: 250"}'),
        (400, b'{"error":{"message":"image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes"}}'),
        (400, b'{"error":{"message":"array too long. Expected an array with maximum length 128, but got length 140"}}'),
        (401, b'{"error":{"message":"prompt is too long: 2 tokens > 1 maximum"}}'),
        (400, b'{"error":{"message":"prompt is too long: 2 tokens > 1 maximum","code":429}}'),
        (400, b'{"error":{"message":"prompt is too long: 2 tokens > 1 maximum","type":"rate_limit_error"}}'),
        (400, b'{"error":{"message":"Unknown role","code":["context_length_exceeded"],"type":{}}}'),
        (400, b""),
        (400, b"\xff\xfe"),
        (400, b"[" * 20_000),
        (400, b'{"error":{"n_ctx":null}}'),
    ],
)
def test_other_errors_are_none(status: int, body: bytes) -> None:
    """Rate limits, credits, bad parameters and answers that are no JSON are not taken for an overflow."""
    found = parse_overflow(status, body)
    assert found is None or (found.window_tokens is None and b"n_ctx" in body)
