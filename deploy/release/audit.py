"""Looks the locked packages up among known vulnerabilities, by pip-audit: ``make audit``.

It ends with 1 if a package has one, and with 2 if a package could not be looked up, as where there is no network.
``--offline`` lets the latter pass, so that a machine without a network can say what it could not check.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def main() -> int:
    """Audit both locks of what is shipped, and return the exit code."""
    parser = argparse.ArgumentParser(description="Look the locked packages up among known vulnerabilities.")
    parser.add_argument("--offline", action="store_true", help="pass if no database can be reached")
    offline: bool = parser.parse_args().offline
    lock = str(ROOT / "requirements" / "local.txt")  # it holds all of runtime.txt, at the same versions
    command = [sys.executable, "-m", "pip_audit", "--disable-pip", "--require-hashes", "--format", "json", "-r", lock]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        sys.stdout.write(f"Not audited: {done.stderr.strip().splitlines()[-1] if done.stderr else 'no answer'}\n")
        return 0 if offline else 2
    harmful = [package for package in packages if package.get("vulns")]
    for package in harmful:
        names = ", ".join(vulnerability["id"] for vulnerability in package["vulns"])
        sys.stdout.write(f"{package['name']} {package['version']}: {names}\n")
    unknown = sum("skip_reason" in package for package in packages)
    sys.stdout.write(f"{len(packages) - unknown} packages audited, {len(harmful)} harmful, {unknown} not looked up.\n")
    if harmful:
        return 1
    return 2 if unknown and not offline else 0


if __name__ == "__main__":
    sys.exit(main())
