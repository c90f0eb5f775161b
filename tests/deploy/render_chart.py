"""Lints and renders the chart with Helm's own library; runs in ``.venv-deploy``, which has it.

The first argument is the chart's folder, the second its values in JSON. It prints findings and manifests as JSON.
"""

import json
import sys

import helm_python as helm

folder, values = sys.argv[1], json.loads(sys.argv[2])
findings = helm.lint(folder, values, strict=True)
try:
    with helm.Chart.load(folder) as chart:
        manifests = chart.render(values, name="release", namespace="default")
    error = ""
except helm.HelmError as problem:
    manifests, error = {}, str(problem)
print(json.dumps({"findings": findings, "manifests": manifests, "error": error}))
