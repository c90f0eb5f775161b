"""Which tool results keep their bytes: what an agent edits by line, errors, media, and what nobody can judge."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemark.core.conversation.exact_results import calls_by_result, is_exact
from tidemark.core.conversation.messages import Message, ToolCall
from tidemark.dialects.chat.message import parse_message

ROWS = json.dumps([{"id": number, "name": f"thing {number}"} for number in range(20)], indent=2)
LOG = "\n".join(f"2024-05-01 10:00:{number:02} INFO served request {number * 7}" for number in range(60))


def result(content: Any, **members: Any) -> Message:
    """A tool's result."""
    value = {"role": "tool", "tool_call_id": "a", "content": content, **members}
    return parse_message(json.dumps(value).encode(), value, 0)


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call of a tool."""
    return ToolCall("a", name, json.dumps(arguments))


@pytest.mark.parametrize(
    "asked",
    [
        call("list_issues", owner="me", state="open"),
        call("mcp__github__search_issues", query="bug"),
        call("bash", command="kubectl get pods -o json"),
        call("bash", command="aws ec2 describe-instances --profile prod"),
        call("bash", command="npm test 2>&1 | tail -50"),
        call("bash", command="curl -s https://example.com | jq ."),
        call("shell", command=["bash", "-lc", "gh api repos/x/y/issues | head -100"]),
        call("http_request", url="https://api.example.com/v1/users", headers={"Content-Type": "application/json"}),
    ],
    ids=lambda asked: str(asked.arguments),
)
def test_results_of_services_and_builds_need_not_be_exact(asked: ToolCall) -> None:
    """Nobody edits them by line."""
    assert not is_exact(result(ROWS), asked)
    assert not is_exact(result(LOG), asked)


@pytest.mark.parametrize(
    "asked",
    [
        call("Read", file_path="/a.json"),
        call("read_file", target="a.json"),
        call("readFile", name="a.json"),
        call("readfile", name="a.json"),
        call("view"),
        call("mcp__fs__open", what="a"),
        call("str_replace_based_edit_tool", command="insert"),
        call("fetch", path="src/a.json"),
        call("lint", filePath="a.json"),
        call("lint", files=["a.json"]),
        call("lint", target_file="a.json"),
        call("bash", command="cat a.json"),
        call("bash", command="cd x && sed -n 1,20p a.json"),
        call("bash", command="head -20 a.json"),
        call("bash", command="ls; tail a.json"),
        call("bash", command="nl -ba a.py"),
        call("bash", command="less a.py"),
        call("bash", command="grep -n def a.py"),
        call("bash", command="docker exec box /bin/cat /etc/x"),
        call("bash", command="git -C x show HEAD:a.json"),
        call("bash", command="git diff"),
        call("bash", command="git log --word-diff"),
        call("bash", command="git cat-file -p HEAD:a.json"),
        call("bash", command="cd x && jq . package.json"),
        call("resource", uri="file:///x/a.json"),
        ToolCall("a", "bash", r'{"command":"cd x \u0026\u0026 head a.json"}'),
        ToolCall("a", "bash", r'{"command":"sh -c \u0022head a.json\u0022"}'),
        call("bash", command="python -c \"print(open('a.json').read())\""),
        call("shell", command=["bash", "-lc", "sudo\tcat a.json"]),
        call("shell", command=["tail", "-n", "5", "a.json"]),
        call("exec", script="ls\nhead -3 a.py"),
        call("powershell", command="Get-Content a.json"),
        call("node", code="fs.readFileSync('a.json')"),
    ],
    ids=lambda asked: f"{asked.name} {asked.arguments}",
)
def test_reads_of_files_are_exact(asked: ToolCall) -> None:
    """By the function's name, by an argument that states a file, or by a command that prints one."""
    assert is_exact(result(ROWS), asked)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{number:6}\tvalue = {number}   " for number in range(1, 40)),
        "\n".join(f"{number}→value = {number}   " for number in range(118, 160)),
        "\n".join(f"{number}: value   " for number in (3, 17, 80, 200)),
        "\n".join(f"{number}: value" if number % 3 else f"{number}-" for number in range(1, 30)),
        "\n".join(f"src/a.py:{number}:value = 1   " for number in (3, 17, 80)),
    ],
    ids=["cat -n", "arrows", "grep -n", "grep -C", "grep -rn"],
)
def test_lines_with_numbers_are_exact(text: str) -> None:
    """Whatever printed them: an agent edits by these numbers."""
    assert is_exact(result(text), call("run", command="./show"))


@pytest.mark.parametrize(
    "text",
    [
        "Error: the index is broken\n" + LOG,
        LOG + "\nExit code: 1",
        LOG + "\nTraceback (most recent call last):\n  File ...",
        json.dumps({"error": {"message": "no"}, "rows": [1] * 99}, indent=2),
        json.dumps({"exit_code": 2, "output": LOG}, indent=2),
        "<tool_use_error>" + LOG,
        "bash: foo: command not found\n" + LOG,
        "ValueError: no\n" + LOG,
    ],
)
def test_errors_are_exact(text: str) -> None:
    """Each word of them may be the cause."""
    assert is_exact(result(text), call("bash", command="make"))


def test_a_result_that_its_client_marks_as_an_error_is_exact() -> None:
    """By a member; the same words in a text are no mark."""
    assert is_exact(result(LOG, is_error=True), call("make"))
    assert not is_exact(result(LOG, is_error=False), call("make"))
    assert not is_exact(result(LOG + '\n"is_error": true'), call("make"))


def test_a_result_without_errors_says_so() -> None:
    """An empty list of errors is none."""
    text = json.dumps({"errors": [], "error": None, "rows": [1] * 99}, indent=2)
    assert not is_exact(result(text), call("query"))


def test_results_with_media_or_without_a_call_are_exact() -> None:
    """Nobody knows what they are."""
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    assert is_exact(result([{"type": "text", "text": ROWS}, image]), call("list"))
    assert is_exact(result(ROWS), None)


def test_the_newest_call_before_a_result_is_its_call() -> None:
    """Some servers give the same ids in each turn, and one that comes later is another result's."""

    def asks(name: str) -> Message:
        function = {"name": name, "arguments": "{}"}
        value = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        }
        return parse_message(json.dumps(value).encode(), value, 0)

    messages = [result(""), asks("first"), result(""), asks("second"), result("")]
    assert [(place, asked and asked.name) for place, asked in calls_by_result(messages)] == [
        (0, None),
        (2, "first"),
        (4, "second"),
    ]
