"""What ships beside the code says the same as the code: the default file, the documentation, the models."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.config import check_report, key_notes, load, load_model_defaults, shipped_file
from tidemark.config.environment import VARIABLES
from tidemark.config.models import ENTRY_KEYS, most_specific
from tidemark.core.planning.budget import ModelWindow

ROOT = Path(__file__).parents[2]
HOME = {"HOME": "/home/someone"}
DOCS = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def rows(pattern: str) -> list[tuple[str, ...]]:
    """The rows of the documentation's tables whose start matches."""
    return [found.groups() for found in re.finditer(pattern, DOCS, re.MULTILINE)]


class TestDefaultFile:
    """``config/tidemark.yaml``."""

    def test_it_equals_the_defaults(self) -> None:
        """Loading it changes nothing, and warns of nothing."""
        settings = load(ROOT / "config" / "tidemark.yaml", HOME)
        assert settings == load(None, HOME)
        assert settings.warnings == ()

    def test_it_holds_every_key_with_its_default(self) -> None:
        """A key that is not in the file is not found by whoever reads it."""
        text = (ROOT / "config" / "tidemark.yaml").read_text(encoding="utf-8")
        for note in key_notes():
            name = note.name.rpartition(".")[2]
            assert re.search(rf"^ *{name}: {re.escape(note.default)}( |$)", text, re.MULTILINE), note.name

    def test_it_is_found_without_a_checkout_too(self) -> None:
        """The folder is shipped inside of the package."""
        assert shipped_file("tidemark.yaml").is_file()


class TestDocumentation:
    """``docs/configuration.md``."""

    def test_the_table_has_every_key_and_default_and_no_other(self) -> None:
        """Both ways."""
        documented = rows(r"^\| `([a-z_.]+)` \| `([^`]*)` \| [^|]*\| [^|]+\|$")
        assert documented == [(note.name, note.default) for note in key_notes()]

    def test_the_tables_have_every_key_of_an_entry_and_every_variable(self) -> None:
        """Both ways, and the variables in the same words."""
        assert rows(r"^\| `([a-z_]+)` \| (?:required|none|`auto`) \| [^|]+\|$") == [(key,) for key in ENTRY_KEYS]
        assert rows(r"^\| `(TIDEMARK_[A-Z_]+)` \| (.+) \|$") == list(VARIABLES.items())

    @pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL))
    def test_every_example_loads(self, tmp_path: Path, example: str) -> None:
        """Without a warning."""
        path = tmp_path / "example.yaml"
        path.write_text(example, encoding="utf-8")
        keys = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "REDIS_URL": "redis://h"}
        assert load(path, HOME | keys).warnings == ()


class TestModels:
    """``config/models.yaml``."""

    @pytest.mark.parametrize(
        ("model", "window"),
        [
            ("gpt-5", ModelWindow(272_000, 128_000, 400_000, "api")),
            ("gpt-5-mini-2025-08-07", ModelWindow(272_000, 128_000, 400_000, "api")),
            ("gpt-5-chat-latest", ModelWindow(128_000, 16_384, None, "api")),
            ("openai/gpt-4o", ModelWindow(128_000, 16_384, None, "api")),
            ("azure/gpt-4o-mini", ModelWindow(128_000, 16_384, None, "api")),
            ("gpt-4-turbo", ModelWindow(128_000, 4096, None, "api")),
            ("gpt-4", ModelWindow(8192, 4096, None, "api")),
            ("claude-sonnet-4-5-20250929", ModelWindow(200_000, 64_000, None, "api")),
            ("bedrock/us.anthropic.claude-opus-4-1-20250805-v1:0", ModelWindow(200_000, 32_000, None, "api")),
            ("claude-haiku-4-5", ModelWindow(200_000, 64_000, None, "api")),
            ("claude-3-5-sonnet-20241022", ModelWindow(200_000, 8192, None, "api")),
            ("claude-3-opus-20240229", ModelWindow(200_000, 4096, None, "api")),
            ("claude-3-haiku-20240307", ModelWindow(200_000, 4096, None, "api")),
            ("gemini/gemini-2.5-pro", ModelWindow(1_048_576, 65_536, None, "api")),
            ("gemini-2.5-flash", ModelWindow(1_048_576, 65_536, None, "api")),
            ("gemini-2.5-flash-image", ModelWindow(32_768, 32_768, None, "api")),
            ("gpt-6-sol", ModelWindow(922_000, 128_000, 1_050_000, "api")),
            ("o1-mini-2024-09-12", ModelWindow(128_000, 65_536, None, "api")),
            ("o1", ModelWindow(200_000, 100_000, None, "api")),
            ("gpt-4-32k", ModelWindow(32_768, 4096, None, "api")),
            ("claude-sonnet-4-20250514", ModelWindow(200_000, 64_000, None, "api")),
            ("claude-haiku-5-5", ModelWindow(1_000_000, 128_000, None, "api")),
            ("deepseek/deepseek-v4-pro", ModelWindow(1_000_000, 393_216, None, "api")),
        ],
    )
    def test_the_models_of_the_sources_table_are_known(self, model: str, window: ModelWindow) -> None:
        """S3, "AI Provider Context Limits"; replies as the providers state them today."""
        assert load(None, HOME).window_for(model) == window

    def test_models_with_open_weights_are_left_to_their_server(self) -> None:
        """Their window is what the server was started with."""
        for model in ("llama-3.1-8b-instruct", "ollama/qwen3", "gpt-oss-120b"):
            assert load_model_defaults().find(model) is None

    def test_no_window_is_larger_than_litellms(self) -> None:
        """A window that is taken too large overflows upstream; litellm's data is read, not imported."""
        spec = importlib.util.find_spec("litellm")
        assert spec is not None
        assert spec.origin is not None
        data = json.loads(Path(spec.origin).with_name("model_prices_and_context_window_backup.json").read_text())
        checked = 0
        for model, most in _chat_models(data):
            found = load_model_defaults().find(model)
            if found is not None and "/" not in model:
                checked += 1
                assert (found.window.max_input_tokens or 0) <= most, model
        assert checked > 60

    def test_the_longest_glob_holds(self) -> None:
        """An exact name goes before any glob, and nothing fits nothing."""
        patterns = {"gpt-*": 1, "gpt-4*": 2, "gpt-4": 3, "*": 0}
        found = [most_specific(patterns, name) for name in ("gpt-4", "gpt-4o", "gpt-5", "o1")]
        assert found == [3, 2, 1, 0]
        assert most_specific({"a": 1}, "b") is None


def _chat_models(data: dict[str, dict[str, object]]) -> Iterator[tuple[str, int]]:
    """Names and windows of the chat models that litellm knows, fine-tuned ones left out."""
    for model, entry in data.items():
        most = entry.get("max_input_tokens")
        if entry.get("mode") in ("chat", "responses") and isinstance(most, int) and "ft:" not in model:
            yield model, most


class TestReport:
    """What ``tidemark check`` prints."""

    def test_a_good_file_is_summed_up_for_each_model(self, tmp_path: Path) -> None:
        """Where requests go, the window and who says so, the marks in tokens."""
        path = tmp_path / "a.yaml"
        path.write_text("""
model_list:
  - {model_name: gpt-5, litellm_params: {model: openai/gpt-5}}
  - model_name: small
    litellm_params: {model: openai/small}
    model_info: {max_input_tokens: 8192, max_output_tokens: 1024}
    compaction: {strategy: extractive}
  - {model_name: idle, litellm_params: {model: openai/x}, compaction: {enabled: false}}
upstream: http://me:hush@host/v1
router_settings: {}
""")
        lines, ok = check_report(path, HOME)
        assert ok
        assert [line.partition(" with the longest")[0] for line in lines] == [
            f"{path}: this configuration can be used",
            f"warning: {path}:10: router_settings is LiteLLM's own and is ignored here",
            "listens on 127.0.0.1:8787 with 1 worker",
            "store embedded, kept for 30 days after the last use",
            "data in /home/someone/.local/share/tidemark",
            "",
            "gpt-5 -> openai/gpt-5, lane auto",
            "  window 400,000 (models.yaml), limit 252,000",
            "  high water 252,000, prepare 176,400, low water 113,400, retention 63,000, summary 4,096",
            "  recall up to 2,000 for a question",
            "  strategy hybrid, summarizer auto, on failure deterministic",
            "",
            "small -> openai/small, lane auto",
            "  window 8,192 (model_info), limit 6,758",
            "  high water 6,758, prepare 4,730, low water 3,041, retention 1,689, summary 675 to 2,027",
            "  recall up to 540 for a question",
            "  strategy extractive, on failure deterministic",
            "",
            "idle -> openai/x, lane auto",
            "  never compacted (enabled: false)",
            "",
            "any other model -> http://***@host/v1",
            "  window 128,000 (assumed, unless litellm's data or the upstream states it), limit 117,504",
            "  high water 117,504, prepare 82,252, low water 52,876, retention 29,376, summary 4,096",
            "  recall up to 2,000 for a question",
            "  strategy hybrid, summarizer auto, on failure deterministic",
        ]

    def test_a_bad_file_gets_its_problems_and_their_number(self, tmp_path: Path) -> None:
        """As ``load`` tells them."""
        path = tmp_path / "a.yaml"
        path.write_text("sever: {}\nstores: {}\n")
        lines, ok = check_report(path, HOME)
        assert not ok
        assert [line.partition(":")[2][:1] for line in lines[:2]] == ["1", "2"]
        assert lines[2] == "2 problems found; nothing is started with this configuration"
