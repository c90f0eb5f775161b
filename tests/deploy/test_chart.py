"""The chart of ``deploy/helm``: Helm takes it, Kubernetes takes what it renders, and it does what the page says."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import tidemark
from tests.deploy.programs import TOOLS, find
from tests.docs.pages import ROOT
from tidemark.config import load
from tidemark.config.sections import ServerSettings

CHART = ROOT / "deploy/helm/tidemark"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SECRET: dict[str, Any] = {"existingSecret": "tidemark"}
PLENTY: dict[str, Any] = {
    **SECRET,
    "providerKeys": ["OPENAI_API_KEY"],
    "imagePullSecrets": [{"name": "pull"}],
    "config": {"model_list": [{"model_name": "m", "litellm_params": {"model": "openai/gpt-4o"}}]},
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"clients": [{"namespaceSelector": {}}], "scrapers": [{"podSelector": {}}]},
    "podAnnotations": {"a": "b"},
    "serviceAccount": {"annotations": {"a": "b"}},
    "service": {"annotations": {"a": "b"}},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
"""Everything that can be switched on."""
BARE: dict[str, Any] = {**SECRET, "networkPolicy": {"enabled": False}}
NOT_OF_KUBERNETES = {"ServiceMonitor", "PrometheusRule"}
"""They are the Prometheus Operator's, and have no schema here."""
INFORMATION = 1
"""The severity of what Helm's linter recommends, such as an icon."""


@cache
def _rendered(values: str) -> dict[str, Any]:
    script = ROOT / "tests/deploy/render_chart.py"
    command = [find("python", TOOLS), str(script), str(CHART), values]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def manifests(values: dict[str, Any]) -> dict[str, Any]:
    """What the chart renders, by kind."""
    answer = _rendered(json.dumps(values))
    assert answer["error"] == ""
    texts = [text for name, text in answer["manifests"].items() if name.endswith(".yaml")]
    return {one["kind"]: one for one in map(yaml.safe_load, texts) if one}


def pod(values: dict[str, Any]) -> dict[str, Any]:
    """The specification of a pod."""
    spec: dict[str, Any] = manifests(values)["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("values", [SECRET, PLENTY, BARE], ids=["plain", "plenty", "bare"])
def test_helm_finds_nothing_wrong(values: dict[str, Any]) -> None:
    """As strict as ``helm lint --strict``."""
    findings = _rendered(json.dumps(values))["findings"]
    assert findings["errors"] == []
    assert [one for one in findings["messages"] if one["severity"] > INFORMATION] == []


@pytest.mark.parametrize("values", [SECRET, PLENTY, BARE], ids=["plain", "plenty", "bare"])
@pytest.mark.parametrize("version", ["1.30.0", "1.37.0"])
def test_kubernetes_takes_what_is_rendered(values: dict[str, Any], version: str, tmp_path: Path) -> None:
    """By its own schema, without unknown members."""
    paths = []
    for kind, manifest in manifests(values).items():
        if kind not in NOT_OF_KUBERNETES:
            path = tmp_path / f"{kind}.yaml"
            path.write_text(yaml.safe_dump(manifest))
            paths.append(str(path))
    command = [find("kubernetes-validate", TOOLS), "--strict", "--kubernetes-version", version, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_does_not_render_without_a_secret() -> None:
    """The error says what is missing."""
    assert "existingSecret must name a Secret" in _rendered("{}")["error"]


def test_no_manifest_holds_a_secret() -> None:
    """Each comes from the Secret that the operator has made, by reference."""
    assert "Secret" not in manifests(PLENTY)
    variables = pod(PLENTY)["containers"][0]["env"]
    assert [one["name"] for one in variables if "value" in one] == ["TIDEMARK_DATA_DIR"]
    named = {one["name"] for one in variables}
    assert {"TIDEMARK_SECRET", "TIDEMARK_STORE_URL", "TIDEMARK_ADMIN_TOKEN", "OPENAI_API_KEY"} <= named
    references = [one["valueFrom"]["secretKeyRef"] for one in variables if "valueFrom" in one]
    assert {reference["name"] for reference in references} == {"tidemark"}


@pytest.mark.parametrize("longest", [600, 3600])
def test_a_pod_may_finish_its_longest_stream(longest: int) -> None:
    """Tidemark has no limit for open streams, so only Kubernetes' matters; the pause before is a part of it."""
    spec = pod({**SECRET, "longestStreamSeconds": longest})
    pause = int(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > pause + longest
    probe = spec["containers"][0]["readinessProbe"]
    assert pause >= probe["periodSeconds"] + probe["timeoutSeconds"]


def test_all_files_allow_the_same_longest_stream() -> None:
    """What nginx lets through, the chart and systemd let finish."""
    (nginx,) = re.findall(r"proxy_read_timeout (\d+)s", (ROOT / "deploy/nginx.conf").read_text(encoding="utf-8"))
    unit = (ROOT / "deploy/systemd/tidemark.service").read_text(encoding="utf-8")
    (systemd,) = re.findall(r"TimeoutStopSec=(\d+)", unit)
    assert int(systemd) > VALUES["longestStreamSeconds"] == int(nginx)


def test_a_pod_has_no_privileges_and_a_read_only_file_system() -> None:
    """Only the folders of its data and its temporary files can be written to."""
    spec = pod(SECRET)
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert written == {"/data", "/tmp"}  # noqa: S108
    user = re.search(r"^USER (\d+)$", (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert user is not None
    assert spec["securityContext"]["runAsUser"] == int(user[1])


@pytest.mark.parametrize(
    ("values", "size"),
    [
        (SECRET, f"{ServerSettings().max_spools_mb + 256}Mi"),
        ({**SECRET, "workers": 3, "config": {"server": {"max_spools_mb": 2000}}}, "6256Mi"),
        ({**SECRET, "config": {"server": {"max_spool_mb": 2000, "max_spools_mb": 10}}}, "2256Mi"),
        ({**SECRET, "temporary": "9Gi"}, "9Gi"),
    ],
)
def test_the_disk_takes_the_forms_of_all_workers(values: dict[str, Any], size: str) -> None:
    """Kubernetes evicts a pod that takes more."""
    (disk,) = [one for one in pod(values)["volumes"] if one["name"] == "temporary"]
    assert disk["emptyDir"] == {"sizeLimit": size}


def test_the_configuration_is_one_that_tidemark_loads(tmp_path: Path) -> None:
    """A changed one starts new pods."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(manifests(PLENTY)["ConfigMap"]["data"]["tidemark.yaml"])
    environ = {one["name"]: "redis://h" for one in pod(PLENTY)["containers"][0]["env"] if "valueFrom" in one}
    load(path, {"HOME": str(tmp_path), **environ})
    sums = {
        manifests(v)["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for v in (SECRET, PLENTY)
    }
    assert len(sums) == 2


def test_the_number_of_pods_follows_the_streams_in_flight() -> None:
    """The metric is one of Tidemark's, and the deployment leaves the number to the autoscaler."""
    scaler = manifests(PLENTY)["HorizontalPodAutoscaler"]["spec"]
    (metric,) = scaler["metrics"]
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert f"| `{metric['pods']['metric']['name']}` | gauge |" in page
    assert "replicas" not in manifests(PLENTY)["Deployment"]["spec"]
    assert manifests(SECRET)["Deployment"]["spec"]["replicas"] == VALUES["replicas"]


def test_everything_selects_the_same_pods() -> None:
    """A selector of other labels would select nothing, and nobody would notice."""
    made = manifests(PLENTY)
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = [
        made["Deployment"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels for selector in selectors)
    monitor = made["ServiceMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= made["Service"]["metadata"]["labels"].items()
    assert made["Service"]["metadata"]["labels"][monitor["jobLabel"]] == "tidemark"


def test_the_charts_rules_are_those_of_the_repository() -> None:
    """Helm reads no file outside of a chart, so it has a copy."""
    rules = yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text(encoding="utf-8"))
    assert manifests(PLENTY)["PrometheusRule"]["spec"] == rules
    assert (CHART / "files/alerts.yaml").read_bytes() == (ROOT / "deploy/alerts.yaml").read_bytes()


def test_the_chart_has_the_programs_version() -> None:
    """Its image is the one of this source."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == tidemark.__version__
