"""From the tree to checked values: each key is looked up, read as its kind wants it, or told as a problem.

Nothing here stops at the first problem: a person mends a file once. ``loading.py`` decides what to read.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.config.kinds import Kind, Unfit
from proxy.config.sections import Given, key_notes
from proxy.config.templates import TemplateFile, TemplateProblem, load_template
from proxy.config.tree import Items, Node, Scalar, Table, resolve
from proxy.core.conversation.messages import JsonValue

REFERENCE = "os.environ/"
"""LiteLLM's way to name an environment variable in place of a value."""
_LITELLM_HOMES: Mapping[str, str] = {
    **dict.fromkeys(("max_input_tokens", "max_output_tokens", "context_window", "mode"), "model_info"),
    **dict.fromkeys(("model", "api_base", "api_key", "api_version", "timeout", "rpm"), "litellm_params"),
}
"""Where keys belong that LiteLLM's files hold and that are easily put one level too high."""
_SHOWN_CHARACTERS = 60
"""How much of a wrong value a message repeats."""

LATER: Mapping[str, tuple[object, ...]] = {
    "auth.mode": ("passthrough",),
}
"""Keys whose feature is not in this release yet, with the values that change nothing. A feature that
comes takes its line out. Any other value is refused: a setting without effect is worse than none."""


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """A problem or a warning and where it stands; line 0 is the file as a whole."""

    line: int
    message: str


class Reader:
    """Reads one file's tree; state: the problems and warnings so far, in the order found."""

    def __init__(self, environ: Mapping[str, str], folder: Path | None = None) -> None:
        """Nothing is read yet.

        :param folder: what a path in the file counts from; None for the working directory
        """
        self.problems: list[Remark] = []
        self.warnings: list[Remark] = []
        self._environ = environ
        self._folder = folder or Path.cwd()

    def problem(self, line: int, message: str) -> None:
        """Note what must be mended."""
        self.problems.append(Remark(line, message))

    def warn(self, line: int, message: str) -> None:
        """Note what may be meant otherwise, but can be used."""
        self.warnings.append(Remark(line, message))

    def table(self, node: Node | None, name: str, known: Collection[str]) -> Table:
        """A mapping whose keys are all known; an empty one where there is none."""
        table = self.free_table(node, name)
        nodes = dict(table.nodes)
        for one in table.nodes:
            if one not in known:
                self.problem(table.key_lines[one], _unknown(one, name, known))
                del nodes[one]
        return dataclasses.replace(table, nodes=nodes)

    def free_table(self, node: Node | None, name: str) -> Table:
        """A mapping of any keys; an empty one where there is none."""
        if isinstance(node, Table):
            return node
        if node is not None and not (isinstance(node, Scalar) and node.value is None):
            self.problem(node.line, f"{name} must hold keys and values, and not {_shown(node)}")
        return Table({}, {}, node.line if node else 0)

    def items(self, node: Node | None, name: str) -> tuple[Node, ...]:
        """The entries of a list; none where there is no list."""
        if isinstance(node, Items):
            return node.nodes
        if node is not None and not (isinstance(node, Scalar) and node.value is None):
            self.problem(node.line, f"{name} must be a list (lines that start with '- '), and not {_shown(node)}")
        return ()

    def section(self, defaults: Any, node: Node | None, name: str, generic: str = "") -> Given:
        """The keys that a section states.

        :param defaults: the section's class at its defaults, which says what is known
        :param name: what the section is called in messages
        :param generic: its name in ``LATER``, where that differs
        """
        fields = {one.name: one for one in dataclasses.fields(defaults)}
        given: dict[str, Any] = {}
        for one, value in self.table(node, name, fields).nodes.items():
            inner, path = getattr(defaults, one), f"{generic or name}.{one}"
            if dataclasses.is_dataclass(inner):
                given[one] = self.section(inner, value, f"{name}.{one}", path)
                continue
            found = self.value(value, f"{name}.{one}", fields[one].metadata["kind"])
            if found is not MISSING and self._available(value.line, f"{name}.{one}", path, found, inner):
                given[one] = found
        return given

    def value(self, node: Node, name: str, kind: Kind[Any]) -> Any:
        """The value of a key, or ``MISSING`` after a problem."""
        scalar = self._expanded(node)
        if scalar is None:
            return MISSING
        try:
            if isinstance(scalar, Scalar):
                found = kind.read(scalar)
                return self._template(node.line, name, found) if isinstance(found, TemplateFile) else found
            more = ""
        except Unfit as unfit:
            more = str(unfit)
        self.problem(node.line, f"{name} is {_shown(scalar)}; " + (more or f"it takes {kind.wanted}"))
        return MISSING

    def plain(self, node: Node) -> JsonValue:
        """A value of LiteLLM's own sections as it is, references to the environment replaced."""
        match node:
            case Table():
                return {name: self.plain(value) for name, value in node.nodes.items()}
            case Items():
                return [self.plain(value) for value in node.nodes]
        scalar = self._expanded(node)
        if scalar is None or not isinstance(scalar, Scalar):
            return None
        return scalar.text if scalar.variable else scalar.value

    def _expanded(self, node: Node) -> Node | None:
        """A scalar with what the environment holds in place of a reference; None after a problem."""
        if not (isinstance(node, Scalar) and isinstance(node.value, str) and node.value.startswith(REFERENCE)):
            return node
        name = node.value.removeprefix(REFERENCE).strip()
        if name not in self._environ:
            self.problem(node.line, f'the environment variable "{name}" is not set; set it, or remove {node.value}')
            return None
        text = self._environ[name]
        return Scalar(resolve(text), text, node.line, variable=name)

    def _template(self, line: int, name: str, file: TemplateFile) -> Any:
        """A person's own template, or ``MISSING`` after a problem, which names that file's line too."""
        path = self._folder / file.path.expanduser()
        try:
            return load_template(path)
        except TemplateProblem as problem:
            self.problem(line, f"{name}: {path}:{problem.line}: {problem.message}")
            return MISSING

    def _available(self, line: int, name: str, path: str, value: object, default: object) -> bool:
        if path not in LATER or value == default or value in LATER[path]:
            return True
        self.problem(line, f"{name}: {value!s} is not available yet; remove the line or leave it at {default!s}")
        return False


MISSING = object()
"""In place of a value that could not be read."""


def _shown(node: Node) -> str:
    """A wrong value in a message; never one of the environment, which may be a secret."""
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if node.variable:
        return f"what the environment variable {node.variable} holds"
    if node.value is None:
        return "empty"
    if "://" in node.text:
        return "a URL"
    cut = node.text[:_SHOWN_CHARACTERS] + "..." * (len(node.text) > _SHOWN_CHARACTERS)
    return f'"{cut}"' if isinstance(node.value, str) else cut


def _unknown(name: str, section: str, known: Collection[str]) -> str:
    """What is said of a key that nobody knows: the nearest here, or where it belongs, or all there are."""
    where = f" in {section}" if section else ""
    shown = name[:_SHOWN_CHARACTERS]
    near = difflib.get_close_matches(shown, known, n=1)
    homes = sorted({note.name.rpartition(".")[0] for note in key_notes() if note.name.endswith(f".{name}")})
    if near and not homes:  # a key of another section goes before one that is only alike
        return f'unknown key "{shown}"{where}; did you mean "{near[0]}"?'
    if name in _LITELLM_HOMES:
        return f'unknown key "{shown}"{where}; it belongs under {_LITELLM_HOMES[name]}'
    if homes:
        return f'unknown key "{shown}"{where}; it belongs under {" or ".join(homes)}'
    return f'unknown key "{shown}"{where}; known are: {", ".join(known)}'
