"""What the archive tells of forks and edits: their own history, and nothing of what was said elsewhere."""

from __future__ import annotations

from tests.features.conversations.test_archive import got
from tests.request.conftest import Bench, Client
from tests.request.talk import assistant, history, long, user
from tests.support.scripted import Answer, says

TWO_MODELS = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
  - model_name: other
    litellm_params: {{model: openai/scripted-too, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
"""


def test_an_answer_that_was_asked_for_anew_has_a_context_of_its_own(bench: Bench) -> None:
    """The model that gave it, and what that model was sent; the question is the first turn's still."""
    client = bench.client("anew", config=TWO_MODELS)
    client.chat([user("Which one?")])
    bench.upstream.script = says("Another one.")
    fork = client.chat([user("Which one?")], model="other").headers["x-tidemark-conversation"]
    assert [one["message"]["content"] for one in got(client, f"/{fork}")["data"]] == ["Which one?", "Another one."]
    seen = [got(client, f"/{fork}/context", at=place) for place in (1, 2)]
    assert [one["model"] for one in seen] == ["small", "other"]
    assert [(one["messages"], one["exact"]) for one in seen] == [([user("Which one?")], True)] * 2


def test_a_question_that_was_edited_is_not_told_as_asked(client: Client) -> None:
    """The parent's turn was asked with it: of what a fork has of that turn, nothing is certain."""
    said = [user("One."), assistant("Two."), user("Three.")]
    client.chat(said)
    fork = client.chat([*said[:2], user("Other.")]).headers["x-tidemark-conversation"]
    assert [got(client, f"/{fork}/context", at=place)["exact"] for place in (2, 3, 4)] == [False, True, True]
    assert got(client, f"/{fork}/context", at=4)["messages"] == [*said[:2], user("Other.")]


def test_a_summary_of_what_was_never_stored_is_not_told(bench: Bench, client: Client) -> None:
    """It was kept, then its request failed and the user said something else: no request uses it, so none is shown."""
    begun = [user("One."), assistant("Two.")]
    bench.upstream.script = says("Two.")
    known = client.chat(begun[:1]).headers["x-tidemark-conversation"]
    bench.upstream.script = lambda _: Answer([b"{}"], status=500)
    failed = client.chat([*begun, *history(14, 150), user("Go on.")])
    assert (failed.status_code, failed.headers["x-tidemark-action"]) == (500, "compacted")
    bench.upstream.script = says("Two.")
    id_ = client.chat([*begun, *history(14, 10), user(long(99, 10))]).headers["x-tidemark-conversation"]
    assert id_ == known
    told = got(client, f"/{id_}", limit=100)
    assert (told["summarized_messages"], {one["state"] for one in told["data"]}) == (0, {"in_context"})
    assert got(client, f"/{id_}/summaries")["data"] == []
    assert got(client, f"/{id_}/context")["summarized_messages"] == 0
