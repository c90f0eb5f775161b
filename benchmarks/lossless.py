"""Measures what ``tool_results: lossless`` saves, how long it takes, and what it changes of texts it was not made for.

``make bench-lossless`` prints the share of the tokens of tool results that goes, for traffic with services and for
coding agents, and the time for 100 KB beside that of reading it as JSON. ``ARGS="FOLDER ..."`` also looks at the files
in folders as if each were a result: how many change, and in how many a reader may miss something.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.counting import MODEL
from tidemark.core.conversation.exact_results import is_exact
from tidemark.core.conversation.lossless import LineRecord, squeezed
from tidemark.core.conversation.messages import ToolCall
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter

GOAL = 0.20
"""The share of the tokens of tool results that is to go in traffic with services."""
SIZE = 100_000
LARGEST_FILE = 1_000_000
Traffic = Iterator[tuple[str, dict[str, str], str]]
"""Results with the name and the arguments of their calls."""
_HARD_BREAK = re.compile(r"\S {2,}\n(?=\S)")
_COLOURED = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m\S")


def _hex(random: Random, size: int) -> str:
    return "".join(random.choices("0123456789abcdef", k=size))


def _time(random: Random) -> str:
    return (
        f"2025-0{random.randint(1, 9)}-{random.randint(10, 28)}T{random.randint(10, 23)}:{random.randint(10, 59)}:07Z"
    )


def pod(random: Random) -> dict[str, Any]:
    """Make a pod as Kubernetes describes it."""
    name = f"{random.choice(['api', 'worker', 'web', 'cron'])}-{_hex(random, 9)}-{_hex(random, 5)}"
    conditions = [
        {"lastProbeTime": None, "lastTransitionTime": _time(random), "status": "True", "type": kind}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    container = {
        "image": f"registry.example.com/{name[:3]}:{_hex(random, 7)}",
        "name": name[:3],
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": {"memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
        "volumeMounts": [{"mountPath": "/var/run/secrets", "name": f"kube-api-{_hex(random, 5)}", "readOnly": True}],
    }
    metadata = {
        "creationTimestamp": _time(random),
        "labels": {"app": name[:3], "pod-template-hash": _hex(random, 9)},
        "name": name,
        "namespace": "default",
        "uid": _hex(random, 32),
    }
    spec = {"containers": [container], "nodeName": f"node-{random.randint(1, 9)}", "tolerations": []}
    status = {"conditions": conditions, "hostIP": "10.0.3.7", "phase": "Running", "qosClass": "Burstable"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def issue(random: Random) -> dict[str, Any]:
    """Make an issue as GitHub describes it."""
    number, login = random.randint(1, 9999), f"user{random.randint(1, 99)}"
    address = "https://api.github.com/repos/example/project"
    words = "The server closes streams when a proxy buffers them. It was fine before the last release; see the log."
    return {
        "url": f"{address}/issues/{number}",
        "labels_url": f"{address}/issues/{number}/labels{{/name}}",
        "html_url": f"https://github.com/example/project/issues/{number}",
        "id": random.randint(10**9, 10**10),
        "number": number,
        "title": f"Streams end early behind proxy {number}",
        "user": {"login": login, "id": random.randint(1, 10**7), "type": "User", "site_admin": False},
        "labels": [{"id": 7, "name": "bug", "color": "d73a4a", "default": True}],
        "state": "open",
        "assignees": [],
        "milestone": None,
        "comments": random.randint(0, 9),
        "created_at": _time(random),
        "body": " ".join([words] * random.randint(1, 4)),
        "reactions": {"+1": 0, "-1": 0, "laugh": 0, "heart": random.randint(0, 3)},
    }


def instance(random: Random) -> dict[str, Any]:
    """Make a machine as AWS describes it."""
    return {
        "InstanceId": f"i-{_hex(random, 17)}",
        "InstanceType": random.choice(["t3.small", "m5.large"]),
        "LaunchTime": _time(random),
        "Monitoring": {"State": "disabled"},
        "Placement": {"AvailabilityZone": "eu-west-1a", "GroupName": "", "Tenancy": "default"},
        "PrivateIpAddress": f"172.31.{random.randint(1, 99)}.{random.randint(1, 99)}",
        "ProductCodes": [],
        "State": {"Code": 16, "Name": "running"},
        "SecurityGroups": [{"GroupName": "default", "GroupId": f"sg-{_hex(random, 17)}"}],
        "Tags": [{"Key": "Name", "Value": f"host-{random.randint(1, 99)}"}, {"Key": "env", "Value": "prod"}],
        "EbsOptimized": False,
    }


def services(random: Random) -> Traffic:
    """Yield what an agent gets that works with services: most of it indented JSON, some bare, some texts and errors."""
    for _ in range(12):
        yield "bash", {"command": "kubectl get pods -o json"}, _json([pod(random) for _ in range(4)], 4)
        yield "list_issues", {"state": "open"}, _json([issue(random) for _ in range(6)], 2)
        yield "bash", {"command": "aws ec2 describe-instances"}, _json([instance(random) for _ in range(5)], 4)
        yield "search_issues", {"query": "proxy"}, json.dumps([issue(random) for _ in range(5)], separators=(",", ":"))
        yield "query", {"sql": "select"}, json.dumps([instance(random) for _ in range(4)])
        yield "get_issue", {"number": "7"}, _json(issue(random), 2)
        table = "\n".join(f"{_hex(random, 12)}   1/1   Running   0   {n}d" for n in range(30))
        yield "bash", {"command": "kubectl get pods"}, f"NAME           READY   STATUS   RESTARTS   AGE\n{table}\n"
        yield "get_issue", {"number": "0"}, _json({"message": "Not Found", "status": "404"}, 2)


def coding(random: Random) -> Traffic:
    """Yield what a coding agent gets: reads of files, builds, tests, logs."""
    own = Path(__file__)
    for number in range(12):
        lines = own.read_text().split("\n")[number * 10 : number * 10 + 120]
        numbered = "\n".join(f"{place:6}\t{line}" for place, line in enumerate(lines, 1))
        yield "Read", {"file_path": str(own.name)}, numbered
        yield "Bash", {"command": "rg -n def"}, "\n".join(f"a.py:{place}:{line}" for place, line in enumerate(lines))
        names = [f"tests/test_{_hex(random, 6)}.py::test_{_hex(random, 8)}" for _ in range(60)]
        dots = "\n".join(f"{name} \x1b[32mPASSED\x1b[0m\x1b[32m  [{at:3}%]\x1b[0m" for at, name in enumerate(names))
        yield "Bash", {"command": "pytest --color=yes"}, f"\x1b[1m==== test session starts ====\x1b[0m\n{dots}"
        plain = "\n".join(f"{name} PASSED  [{at:3}%]" for at, name in enumerate(names))
        yield "Bash", {"command": "pytest -v"}, f"==== test session starts ====\n{plain}"
        waits = "".join(f"\x1b[2K\x1b[1G⠹ reify: timing {_hex(random, 8)}" for _ in range(40))
        yield "Bash", {"command": "npm install"}, f"{waits}\nadded 412 packages in 9s\n"
        ready = "waiting for postgres:5432 to accept connections ...\n" * random.randint(5, 40)
        yield "Bash", {"command": "docker compose up -d"}, f"Container db  Started\n{ready}Container app  Healthy\n" * 2
        built = "\n".join(f"   Compiling crate-{_hex(random, 5)} v1.{n}.0" for n in range(60))
        yield "Bash", {"command": "cargo build"}, f"{built}\n    Finished in 31.20s\n"


def _json(value: Any, indent: int) -> str:
    return json.dumps(value, indent=indent)


class Measured:
    """Counts results. Its state is the sums."""

    def __init__(self, counter: LocalTokenCounter) -> None:
        self.counter = counter
        self.results = self.changed = self.before = self.after = 0

    @property
    def saved(self) -> float:
        """The share of the tokens that went."""
        return 1 - self.after / self.before

    def add(self, name: str, arguments: dict[str, str], text: str) -> None:
        """Add a result."""
        value = {"role": "tool", "tool_call_id": "a", "content": text}
        message = parse_message(json.dumps(value).encode(), value, 0)
        form = None if is_exact(message, ToolCall("a", name, json.dumps(arguments))) else squeezed(text)
        self.results += 1
        self.changed += form is not None
        tokens = self.counter.count_text(text, MODEL)
        self.before += tokens
        self.after += tokens if form is None else self.counter.count_text(form.text, MODEL)


def measured(traffic: Callable[[Random], Traffic], seed: int = 7) -> Measured:
    """Return the sums of one kind of traffic."""
    sums = Measured(LocalTokenCounter())
    for result in traffic(Random(seed)):
        sums.add(*result)
    return sums


def hundred_kilobytes() -> str:
    """Return an indented answer of a service of 100 KB."""
    random = Random(7)
    rows: list[dict[str, Any]] = []
    while len(text := _json(rows, 2)) < SIZE:
        rows += [issue(random) for _ in range(10)]
    return text


def fastest(work: Callable[[], object], times: int = 30) -> float:
    """Return the shortest time of some work, in seconds."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def harm_of(text: str) -> str | None:
    """Return what a reader may miss of a text; empty if nothing, None if the text stays."""
    form = squeezed(text)
    if form is None:
        return None
    if not isinstance(form.record, LineRecord):
        return ""
    if form.record.blanks and _HARD_BREAK.search(text):
        return "blanks that may end a line of Markdown"
    if form.record.codes and _COLOURED.search(text):
        return "colours"
    return "repeated lines" if form.record.runs else ""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    folders: list[Path] = parser.parse_args().folders
    print(f"{'traffic':<10} {'results':>8} {'changed':>8} {'tokens':>9} {'saved':>7}")
    for traffic in (services, coding):
        sums = measured(traffic)
        print(f"{traffic.__name__:<10} {sums.results:>8} {sums.changed:>8} {sums.before:>9,} {sums.saved:>6.1%}")
    text = hundred_kilobytes()
    own, reading = fastest(lambda: squeezed(text)), fastest(lambda: json.loads(text))
    print(f"{len(text):,} characters: {own * 1000:.1f} ms, {own / reading:.1f} times json.loads")
    for folder in folders:
        harms: dict[str, int] = {}
        number = 0
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.stat().st_size < LARGEST_FILE:
                try:
                    harm = harm_of(path.read_bytes().decode())
                except (UnicodeDecodeError, OSError):
                    continue
                number += 1
                if harm is not None:
                    harms[harm or "nothing"] = harms.get(harm or "nothing", 0) + 1
        print(f"{folder}: {sum(harms.values())} of {number} files change; missed: {harms}")


if __name__ == "__main__":
    main()
