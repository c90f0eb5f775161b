"""The enforcing fake of OpenAI's Responses refuses what the documents and users say, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.providers.openai_responses import EnforcingOpenAI, message_of
from tests.support.answers import Answer, Received

Json = dict[str, Any]
TRIGGER = {"type": "compaction_trigger"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "x"}
CUSTOM_RESULT = {"type": "custom_tool_call_output", "call_id": "call_2", "output": "x"}


def ask(api: EnforcingOpenAI, items: Any, key: str = "sk-one", path: str = "/v1/responses", **members: Any) -> Answer:
    """Send a request to the fake."""
    include = ["reasoning.encrypted_content"]
    body = {"model": "gpt-5.5", "input": items, "store": False, "include": include, **members}
    return api(Received(path, json.dumps(body).encode(), {"authorization": f"Bearer {key}"}))


def decoded_body(answer: Answer) -> Json:
    """The body of an answer that is no stream."""
    (piece,) = answer.pieces
    assert isinstance(piece, bytes)
    decoded: Json = json.loads(piece)
    return decoded


def refusal(answer: Answer) -> tuple[int, str, Any]:
    """The status, the message and the code of an error."""
    error = decoded_body(answer)["error"]
    return answer.status, error["message"], error["code"]


def user(text: str) -> Json:
    """A message of the user."""
    return {"role": "user", "content": text}


def talk(api: EnforcingOpenAI, turns: int, **members: Any) -> list[Json]:
    """A talk in which every answer was made by the fake; a question ends it."""
    items: list[Json] = [user("Question 0.")]
    for number in range(1, turns + 1):
        items += decoded_body(ask(api, items, **members))["output"]
        items.append(user(f"Question {number}."))
    return items


def test_a_talk_with_its_encrypted_reasoning_is_answered() -> None:
    """Whole, without ids as Codex sends it, in part from the front, and by another model of the family."""
    api = EnforcingOpenAI()
    items = talk(api, 3)
    assert [item.get("type", "message") for item in items[:3]] == ["message", "reasoning", "message"]
    bare = [{name: value for name, value in item.items() if name != "id"} for item in items]
    for sent in (items, bare, items[3:], "Hi."):
        assert ask(api, sent).status == 200
    assert ask(api, items, model="gpt-5.5-mini").status == 200
    assert api.refusals == []


@pytest.mark.parametrize("has_ids", [True, False])
def test_items_of_another_organization_or_family_are_refused(has_ids: bool) -> None:  # noqa: FBT001
    """In OpenAI's words; two keys of one organization read each other's items."""
    api = EnforcingOpenAI(organizations={"sk-two": "org-2", "sk-three": "org-2"})
    for make in (
        talk,
        lambda api, turns, **more: [*decoded_body(ask(api, [*talk(api, turns, **more), TRIGGER], **more))["output"]],
    ):
        items = make(api, 2, key="sk-two")
        if not has_ids:
            items = [{name: value for name, value in item.items() if name != "id"} for item in items]
        assert ask(api, items, "sk-three").status == 200
        status, message, code = refusal(ask(api, items, "sk-one"))
        assert (status, code) == (400, "invalid_encrypted_content")
        assert "organization_id did not match" in message
        status, message, code = refusal(ask(api, items, "sk-two", model="gpt-6"))
        assert (status, code) == (400, "invalid_encrypted_content")
        assert message.startswith("The encrypted content for item " if has_ids else "The encrypted content gAAA...")
        assert message.endswith("could not be verified. Reason: Encrypted content could not be decrypted or parsed.")


def test_encrypted_content_that_nobody_made_or_under_another_id_is_refused() -> None:
    """One changed letter is enough."""
    api = EnforcingOpenAI()
    first, thought, *rest = talk(api, 1)
    moved = {**thought, "id": "rs_another"}
    assert "item_id did not match" in refusal(ask(api, [first, moved, *rest]))[1]
    for wrong in ("c2VhbGVk", "no base64", thought["encrypted_content"][:-8] + "AAAAAAAA"):
        sent = [first, {**thought, "encrypted_content": wrong}, *rest]
        assert refusal(ask(api, sent))[2] == "invalid_encrypted_content"


def test_nothing_is_kept() -> None:
    """Reasoning comes encrypted only where it is asked for, and without it nobody knows the item again."""
    api = EnforcingOpenAI()
    items = talk(api, 1, include=[])
    status, message, _ = refusal(ask(api, items))
    assert status == 404
    assert message.startswith(f"Item with id '{items[1]['id']}' not found. Items are not persisted when `store`")
    assert ask(api, [items[0], {"type": "item_reference", "id": items[2]["id"]}]).status == 404
    assert refusal(ask(api, "Hi.", previous_response_id="resp_1"))[2] == "previous_response_not_found"
    assert refusal(ask(api, []))[2] == "missing_required_parameter"


def test_reasoning_and_what_follows_it_are_a_pair() -> None:
    """Whoever leaves reasoning out must leave out the ids behind it; reasoning alone is refused."""
    api = EnforcingOpenAI(say=lambda _: [{"type": "reasoning", "summary": []}, CALL])
    first = user("Read.")
    thought, call = decoded_body(ask(api, [first]))["output"]
    unnamed = {name: value for name, value in call.items() if name != "id"}
    assert ask(api, [first, thought, call, RESULT]).status == 200
    assert ask(api, [first, thought, unnamed, RESULT]).status == 200
    assert ask(api, [first, unnamed, RESULT]).status == 200
    orphan = f"Item '{call['id']}' of type 'function_call' was provided without its required 'reasoning' item: "
    assert refusal(ask(api, [first, call, RESULT]))[1] == f"{orphan}'{thought['id']}'."
    lonely = f"Item '{thought['id']}' of type 'reasoning' was provided without its required following item."
    for rest in ([], [user("And?")], [{"role": "developer", "content": "Now."}, unnamed, RESULT]):
        assert refusal(ask(api, [first, thought, *rest]))[1] == lonely
    other = {**message_of("Fine."), "id": "msg_of_another_answer"}
    assert refusal(ask(api, [first, thought, other, user("And?")]))[1] == lonely


def test_calls_and_outputs_are_pairs() -> None:
    """Of both kinds, parallel ones in any order."""
    api = EnforcingOpenAI()
    first = user("Read.")
    assert ask(api, [first, CALL, CUSTOM, CUSTOM_RESULT, RESULT]).status == 200
    for sent, message in (
        ([first, CALL], "No tool output found for function call call_1."),
        ([first, CUSTOM, first], "No tool output found for custom tool call call_2."),
        ([first, RESULT], "No tool call found for function call output with call_id call_1."),
        ([first, RESULT, CALL], "No tool call found for function call output with call_id call_1."),
        ([first, CALL, RESULT, RESULT], "No tool call found for function call output with call_id call_1."),
        ([first, CUSTOM_RESULT], "No tool call found for custom tool call output with call_id call_2."),
    ):
        assert refusal(ask(api, sent))[:2] == (400, message)


def test_roles_contents_and_ids_are_checked() -> None:
    """An assistant's texts are outputs."""
    api = EnforcingOpenAI()
    asked, answered = {"type": "input_text", "text": "Hi."}, {"type": "output_text", "text": "Hi."}
    for role, part in (("user", answered), ("assistant", asked), ("tool", asked)):
        assert refusal(ask(api, [{"role": role, "content": [part]}]))[2] == "invalid_value"
    assert (
        ask(api, [{"role": "developer", "content": [asked]}, {"role": "assistant", "content": [answered]}]).status
        == 200
    )
    named = {**message_of("Hi."), "id": "msg_1"}
    assert refusal(ask(api, [named, named, user("And?")]))[1].startswith("Duplicate item found with id msg_1.")
    assert "begins with 'msg'" in refusal(ask(api, [{**named, "id": "resp_1"}, user("And?")]))[1]
    assert "summary" in refusal(ask(api, [{"type": "reasoning", "encrypted_content": "x"}, named]))[1]


def test_a_trigger_at_the_end_is_answered_with_one_compaction_item() -> None:
    """As a stream with its numbers in order; the item is taken as input, and a trigger anywhere else is refused."""
    api = EnforcingOpenAI()
    items = talk(api, 2)
    for sent in ([TRIGGER, *items], [*items, TRIGGER, TRIGGER]):
        assert refusal(ask(api, sent))[1] == "The 'compaction_trigger' item must be the final input item."
    assert refusal(ask(api, [*items, {**TRIGGER, "id": "x"}]))[2] == "unknown_parameter"
    answer = ask(api, [*items, TRIGGER], stream=True)
    events = [json.loads(piece.split(b"data: ")[1]) for piece in answer.pieces if isinstance(piece, bytes)]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] != "response.in_progress"] == [
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
    ]
    (item,) = events[-1]["response"]["output"]
    assert item == events[-2]["item"]
    assert item["type"] == "compaction"
    assert ask(api, [item, user("And?")]).status == 200


def test_the_endpoint_compacts_to_the_users_messages_and_one_item() -> None:
    """What comes is taken as input; counts are checked as requests are."""
    api = EnforcingOpenAI()
    items = talk(api, 2)
    compacted = decoded_body(ask(api, items, path="/v1/responses/compact"))
    assert compacted["object"] == "response.compaction"
    assert [item["type"] for item in compacted["output"]] == ["message"] * 3 + ["compaction"]
    assert ask(api, [*compacted["output"], user("And?")]).status == 200
    assert decoded_body(ask(api, items, path="/v1/responses/input_tokens"))["input_tokens"] > 0
    for path in ("/v1/responses/compact", "/v1/responses/input_tokens"):
        assert ask(api, items, "sk-two", path=path).status == 400


def test_a_streamed_answer_has_every_item_in_pieces() -> None:
    """With the arguments of calls and the texts of messages."""
    api = EnforcingOpenAI(say=lambda _: [{"type": "reasoning", "summary": []}, CALL, CUSTOM, message_of("Read it.")])
    answer = ask(api, [user("Read.")], stream=True)
    events = [json.loads(piece.split(b"data: ")[1]) for piece in answer.pieces if isinstance(piece, bytes)]
    assert [event["item"] for event in events if event["type"].endswith("item.done")] == events[-1]["response"][
        "output"
    ]
    for kind, whole in (
        ("function_call_arguments", "{}"),
        ("custom_tool_call_input", "x"),
        ("output_text", "Read it."),
    ):
        assert "".join(event["delta"] for event in events if event["type"] == f"response.{kind}.delta") == whole
