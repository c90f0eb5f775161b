"""What a person hears before a port is opened to other machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.config import check_report, exposure_warnings, load

KEYED = """
model_list:
  - model_name: mine
    litellm_params: {model: openai/x, api_base: "http://127.0.0.1:1/v1", MORE}
"""


def warned(folder: Path, more: str, host: str, **environ: str) -> tuple[str, ...]:
    """The warnings of a configuration with one model."""
    path = folder / "tidemark.yaml"
    path.write_text(KEYED.replace("MORE", more))
    return exposure_warnings(load(path, {"TIDEMARK_DATA_DIR": str(folder), **environ}).listening(host=host))


@pytest.mark.parametrize("more", ["api_key: sk-1", "aws_secret_access_key: s", "vertex_credentials: '{}'"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "chat.example.com"])  # noqa: S104 - nobody listens
def test_a_credential_that_other_machines_can_spend_is_told(tmp_path: Path, more: str, host: str) -> None:
    """It names the model, where it listens and the mend, and not the credential."""
    (warning,) = warned(tmp_path, more, host)
    for word in ("mine", host, "127.0.0.1", "TIDEMARK_ADMIN_TOKEN"):
        assert word in warning
    assert "sk-1" not in warning


@pytest.mark.parametrize(
    ("more", "host", "environ"),
    [
        ("api_key: sk-1", "127.0.0.1", {}),
        ("api_key: sk-1", "localhost", {}),
        ("api_key: sk-1", "::1", {}),
        ("max_tokens: 5", "0.0.0.0", {}),  # noqa: S104 - nobody listens
        ("api_key: sk-1", "0.0.0.0", {"TIDEMARK_ADMIN_TOKEN": "t"}),  # noqa: S104 - nobody listens
    ],
)
def test_nothing_is_told_where_nothing_is_to_lose(
    tmp_path: Path, more: str, host: str, environ: dict[str, str]
) -> None:
    """On this machine alone, without a credential, or where somebody has thought of an operator."""
    assert warned(tmp_path, more, host, **environ) == ()


def test_check_tells_it_too(tmp_path: Path) -> None:
    """By the address that the file states."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(KEYED.replace("MORE", "api_key: sk-1") + "server: {host: 0.0.0.0}\n")
    lines, usable = check_report(path, {"TIDEMARK_DATA_DIR": str(tmp_path)})
    assert usable
    assert any(line.startswith("warning: every client that reaches 0.0.0.0") for line in lines)
