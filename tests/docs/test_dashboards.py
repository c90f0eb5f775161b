"""The dashboard and the alert rules of ``deploy/`` name metrics that exist, in expressions that Prometheus reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, names_in

_NAME = re.compile(r"tidemark_[a-z_]+")
_PART = re.compile(r"_(?:bucket|sum|count)$")
"""What Prometheus appends to the name of a histogram."""
_VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$job": "tidemark", "$model": ".*"}
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana.json").read_text(encoding="utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
RULES = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text(encoding="utf-8"))["groups"][0]["rules"]


@pytest.fixture
def promtool() -> str:
    """Prometheus' own checker; skipped where it is not installed."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    return path


def metrics_of(expressions: list[str]) -> set[str]:
    """The names of our metrics, without what a histogram appends."""
    documented = names_in("docs/operations.md", "metric")
    names = {name for expression in expressions for name in _NAME.findall(expression)}
    return {name if name in documented else _PART.sub("", name) for name in names}


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    """Those of docs/operations.md, which a test of their own compares with the program."""
    assert metrics_of(EXPRESSIONS) == names_in("docs/operations.md", "metric")


def test_alerts_name_metrics_that_exist() -> None:
    """And each says in words what happened, and what to do first."""
    assert metrics_of([rule["expr"] for rule in RULES]) <= names_in("docs/operations.md", "metric")
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in RULES)


def test_no_two_panels_share_a_place() -> None:
    """Each has a place of its own on a grid of 24 columns."""
    cells = [
        (column, line)
        for panel in DASHBOARD["panels"]
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24


def test_panels_and_their_queries_have_names_of_their_own() -> None:
    """Grafana shows one of two panels with one id, and one of two queries of a panel with one letter."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(letters)) == len(letters), panel["title"]


def test_prometheus_reads_every_expression_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    """With values in place of Grafana's variables."""
    rules = []
    for number, expression in enumerate(EXPRESSIONS):
        for name, value in _VARIABLES.items():
            expression = expression.replace(name, value)  # noqa: PLW2901 - step by step
        rules.append({"record": f"panel:{number}", "expr": expression})
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_alerts_fire_when_they_should(promtool: str) -> None:
    """``deploy/alerts.test.yaml`` has the cases."""
    command = [promtool, "test", "rules", "alerts.test.yaml"]
    tested = subprocess.run(command, cwd=ROOT / "deploy", capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stdout + tested.stderr
