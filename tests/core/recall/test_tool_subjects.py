"""What a result is about, and which results a summary says can be read again."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import message
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message, ToolCall
from tidemark.core.recall.passage import handle_of
from tidemark.core.recall.tool_subjects import LABEL_CHARS, LEAST_CHARS, label_of, subjects_of, with_results

LONG = "a line that a tool printed\n" * 12


def step(number: int, name: str, arguments: dict[str, str], result: str = LONG) -> list[Message]:
    """A call of a tool and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    asked = message(role="assistant", content=None, tool_calls=[call])
    return [asked, message(role="tool", tool_call_id=f"c{number}", content=f"{number} {result}")]


def test_a_label_is_the_call_and_its_file_or_first_text() -> None:
    """In one line, without the mark that ends an entry."""
    assert label_of(ToolCall("c", "read", '{"limit": 5, "file_path": "src/a.py"}')) == "read src/a.py"
    assert (
        label_of(ToolCall("c", "shell", '{"timeout": 3, "command": "cd src; make\\n test"}'))
        == "shell cd src, make test"
    )
    assert label_of(ToolCall("c", "list", "{}")) == "list"
    assert label_of(ToolCall("c", "list", "no JSON")) == "list"


@given(st.text(min_size=1, max_size=20), st.text(max_size=400))
@settings(max_examples=examples(200), deadline=None)
def test_a_label_is_one_short_line_whatever_the_arguments_are(name: str, argument: str) -> None:
    """Also if a model wrote control characters."""
    label = label_of(ToolCall("c", name, json.dumps({"command": argument})))
    assert len(label) <= len(name) + 1 + LABEL_CHARS + 3
    assert len(label.splitlines()) <= 1
    assert ";" not in label


def test_the_same_file_is_one_subject_of_reads_and_edits() -> None:
    """And the same call one subject of its repeats."""
    read, edit = ToolCall("1", "read", '{"path": "a.py"}'), ToolCall("2", "edit", '{"file_path": "a.py", "new": "x"}')
    assert set(subjects_of(read)) & set(subjects_of(edit)) == {("file", "a.py")}


def test_a_summary_names_the_newest_result_of_each_call() -> None:
    """Those of the summary before stay until a newer one has their label, and the oldest go first."""
    first = [*step(0, "read", {"path": "a.py"}), *step(1, "test", {"command": "make"})]
    earlier = with_results((), first, 8)
    assert earlier == (f"{handle_of(first[1])} read a.py", f"{handle_of(first[3])} test make")
    then = [*step(2, "read", {"path": "a.py"}), *step(3, "grep", {"pattern": "x"}), *step(4, "ls", {}, "short")]
    both = with_results(earlier, then, 8)
    assert both == (earlier[1], f"{handle_of(then[1])} read a.py", f"{handle_of(then[3])} grep x")
    assert with_results(earlier, then, 1) == both[-1:]
    assert with_results(earlier, then, 0) == ()


def test_a_short_result_has_no_handle() -> None:
    """A summary has space for all of it."""
    fits, long = "x" * (LEAST_CHARS - 3), "x" * LEAST_CHARS
    assert with_results((), [*step(0, "a", {}, fits), *step(1, "b", {}, long)], 8)[0].endswith(" b")
