"""The secret beside the data: made once, whole, for all who start; never empty."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidemark.config.signing import FILE, stored_secret
from tidemark.core.errors import ConfigError


def test_it_is_made_once_and_kept(tmp_path: Path) -> None:
    """The second start finds the first one's; only the owner may read it, and nothing else is left behind."""
    folder = tmp_path / "new" / "folder"
    made = stored_secret(folder)
    assert len(made) == 64
    assert stored_secret(folder) == made
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == [FILE]


def test_all_who_start_at_once_get_the_same(tmp_path: Path) -> None:
    """The file has its name only when it is whole: nobody reads the other's half, or nothing, as a secret."""
    for number in range(40):
        folder = tmp_path / str(number)
        with ThreadPoolExecutor(8) as pool:
            made = set(pool.map(stored_secret, [folder] * 8))
        assert len(made) == 1
        assert len(made.pop()) == 64


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_one_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty key would make the same tenants everywhere; the error names the file and the mend."""
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(ConfigError, match="TIDEMARK_SECRET") as refused:
        stored_secret(tmp_path)
    assert str(tmp_path / FILE) in str(refused.value)


def test_a_folder_that_cannot_be_is_told_with_the_mend(tmp_path: Path) -> None:
    """No traceback: the error names the file, the reason and what to set."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/secret.*TIDEMARK_DATA_DIR"):
        stored_secret(tmp_path / "file")
