"""The nginx of `deploy/` in front of servers of a test: the example's own file with other addresses."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_site(folder: Path, behind: Sequence[str], port: int, *, name: str) -> Path:
    """Write nginx's files, with a certificate of their own, and return the one that it is started with.

    :param behind: addresses of the servers behind it, between which it chooses at random
    """
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    subprocess.run([*making, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    site = (ROOT / "deploy/nginx.conf").read_text(encoding="utf-8")
    site = re.sub(r"(ssl_certificate) .*;", rf"\1 {certificate};", site)
    site = re.sub(r"(ssl_certificate_key) .*;", rf"\1 {key};", site)
    servers = "random;" * (len(behind) > 1) + "".join(f"server {address};" for address in behind)
    site = site.replace("server 127.0.0.1:8787;", servers).replace("listen 443", f"listen 127.0.0.1:{port}")
    (folder / "site.conf").write_text(site)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    main = f"daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}}"
    path = folder / "nginx.conf"
    path.write_text(f"{main} http {{ access_log off; {temporary} include {folder}/site.conf; }}")
    return path
