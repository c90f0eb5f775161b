"""The openai SDK's other endpoints through a real Tidemark: it cannot tell that a proxy is there."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.request.conftest import Bench, benched
from tests.support.scripted import Answer, Received, error, streamed
from tests.support.serving import NO_TLS

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]
CONFIG = """
model_list:
  - model_name: mine
    litellm_params: {{model: openai/theirs, api_base: "{base}"}}
"""
VECTOR = base64.b64encode(struct.pack("<3f", 0.5, 0.25, -1.0)).decode()


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("others")) as bench:
        yield bench


@pytest.fixture
def sdk(bench: Bench) -> Iterator[openai.OpenAI]:
    """The SDK, whose model has another name at its upstream."""
    http = openai.DefaultHttpxClient(verify=NO_TLS)
    with openai.OpenAI(api_key="k", base_url=bench.start(config=CONFIG, own=True) + "/v1", http_client=http) as sdk:
        yield sdk


def test_embeddings_are_those_of_the_upstream(bench: Bench, sdk: openai.OpenAI) -> None:
    """Decoded from base64, which the SDK asks for by itself."""
    answer = {
        "object": "list",
        "model": "theirs",
        "data": [{"object": "embedding", "index": 0, "embedding": VECTOR}],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }
    bench.upstream.script = lambda _: Answer([json.dumps(answer).encode()])
    vectors = sdk.embeddings.create(model="mine", input="tide").data
    assert vectors[0].embedding == [0.5, 0.25, -1.0]
    assert bench.upstream.last.json["model"] == "theirs"


def test_a_file_of_several_megabytes_is_uploaded(bench: Bench, sdk: openai.OpenAI, tmp_path: Path) -> None:
    """Its form arrives byte for byte."""
    content = bytes(range(256)) * 12_000
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    bench.upstream.script = _accept_file
    file = sdk.files.create(file=path, purpose="batch")
    assert (file.id, file.bytes) == ("file-1", len(bench.upstream.last.body))
    assert content in bench.upstream.last.body


def test_a_transcription_names_its_model_in_a_form(bench: Bench, sdk: openai.OpenAI) -> None:
    """It is the upstream's name there."""
    bench.upstream.script = lambda _: Answer([b'{"text": "tide"}'])
    assert sdk.audio.transcriptions.create(model="mine", file=("a.wav", b"RIFF" * 1_000)).text == "tide"
    assert b"theirs" in bench.upstream.last.body
    assert b"mine" not in bench.upstream.last.body


def test_speech_is_carried_as_bytes(bench: Bench, sdk: openai.OpenAI) -> None:
    """Read piece by piece."""
    sound = bytes(range(256)) * 500
    bench.upstream.script = lambda _: Answer([sound[:100], sound[100:]], headers=[(b"content-type", b"audio/mpeg")])
    with sdk.audio.speech.with_streaming_response.create(model="mine", voice="alloy", input="tide") as spoken:
        assert b"".join(spoken.iter_bytes()) == sound


def test_legacy_completions_stream(bench: Bench, sdk: openai.OpenAI) -> None:
    """Event by event."""
    bench.upstream.script = lambda _: streamed("one two")
    assert len(list(sdk.completions.create(model="mine", prompt="tide", stream=True))) >= 2


def test_an_error_is_the_upstreams(bench: Bench, sdk: openai.OpenAI) -> None:
    """With its status, its code and its request id."""
    bench.upstream.script = lambda _: error(404, "No such batch", code="batch_not_found")
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.batches.cancel("batch_1")
    assert (caught.value.code, caught.value.request_id) == ("batch_not_found", "req_1")


def _accept_file(request: Received) -> Answer:
    """Answer with a file object."""
    file = {
        "id": "file-1",
        "object": "file",
        "bytes": len(request.body),
        "created_at": 1,
        "filename": "a.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    return Answer([json.dumps(file).encode()])
