"""Reads checked values from the tree: each key is read by its kind, or noted as a problem.

``loading.py`` decides what to read. Reading continues after a problem, so that one run reports all of them.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct

from tidemark.config.kinds import Kind, Unfit, kinds_of
from tidemark.config.masking import UNSHOWN, quoted, quoted_name
from tidemark.config.sections import StatedKeys, key_notes
from tidemark.config.templates import TemplateFile, TemplateProblem, load_template
from tidemark.config.tree import Items, Node, Scalar, Table, resolve
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen

REFERENCE = "os.environ/"
"""LiteLLM's prefix for a value that names an environment variable."""
_LITELLM_HOMES: Mapping[str, str] = {
    **dict.fromkeys(("max_input_tokens", "max_output_tokens", "context_window", "beta_windows", "mode"), "model_info"),
    **dict.fromkeys(("model", "api_base", "api_key", "api_version", "timeout", "rpm"), "litellm_params"),
}
"""The sections of LiteLLM's keys that are easily put one level too high."""
_SHOWN_CHARACTERS = 60
"""The most characters of a wrong key that known ones are compared with."""


@frozen(order=True)
class Remark:
    """A problem or a warning with its line; line 0 is the file as a whole."""

    line: int
    message: str


class Reader:
    """Reads one file's tree; its state is the problems and warnings so far, in order."""

    def __init__(self, environ: Mapping[str, str], folder: Path | None = None) -> None:
        """Create a reader that has read nothing yet.

        :param folder: the base of relative paths in the file; None for the working directory
        """
        self.problems: list[Remark] = []
        self.warnings: list[Remark] = []
        self._environ = environ
        self._folder = folder or Path.cwd()

    def problem(self, line: int, message: str) -> None:
        """Note a problem, which must be fixed, on one line: a quoted value may have several."""
        self.problems.append(Remark(line, " ".join(message.splitlines())))

    def warn(self, line: int, message: str) -> None:
        """Note a warning: the value can be used, but may be a mistake."""
        self.warnings.append(Remark(line, " ".join(message.splitlines())))

    def table(self, node: Node | None, name: str, known_keys: Collection[str]) -> Table:
        """Return a mapping with known keys only; an empty one if there is none."""
        table = self.free_table(node, name)
        nodes = dict(table.nodes)
        for key in table.nodes:
            if key not in known_keys:
                self.problem(table.key_lines[key], _unknown(key, name, known_keys))
                del nodes[key]
        return dataclasses.replace(table, nodes=nodes)

    def free_table(self, node: Node | None, name: str) -> Table:
        """Return a mapping of any keys; an empty one if there is none."""
        if isinstance(node, Table):
            return node
        if node is not None and not (isinstance(node, Scalar) and node.value is None):
            self.problem(node.line, f"{name} must hold keys and values, and not {_shown(node)}")
        return Table({}, {}, node.line if node else 0)

    def items(self, node: Node | None, name: str) -> tuple[Node, ...]:
        """Return the entries of a list; none if there is no list."""
        if isinstance(node, Items):
            return node.nodes
        if node is not None and not (isinstance(node, Scalar) and node.value is None):
            self.problem(node.line, f"{name} must be a list (lines that start with '- '), and not {_shown(node)}")
        return ()

    def section(self, section: type[Struct], node: Node | None, name: str) -> StatedKeys:
        kinds = kinds_of(section)
        return self.values(self.table(node, name, kinds), name, kinds)

    def values(self, table: Table, name: str, kinds: Mapping[str, Kind]) -> StatedKeys:
        """Read the keys of a table that have a kind, as far as they can be read."""
        stated = {key: kind for key, kind in kinds.items() if key in table.nodes}
        read = {key: self.value(table.nodes[key], f"{name}.{key}", kind) for key, kind in stated.items()}
        return {key: value for key, value in read.items() if value is not MISSING}

    def value(self, node: Node, name: str, kind: Kind) -> Any:
        """Read the value of a key; ``MISSING`` after a problem."""
        if kind.is_section:
            return self.section(kind.type, node, name)
        if kind.each is not None and isinstance(node, Items):
            entries = [self.value(entry, name, kind.each) for entry in node.nodes]
            return MISSING if MISSING in entries else tuple(entries)
        scalar = self._expanded(node)
        if scalar is None:
            return MISSING
        try:
            if isinstance(scalar, Scalar):
                return self._usable(node.line, name, kind.read(scalar))
            more = ""
        except Unfit as unfit:
            more = str(unfit)
        self.problem(node.line, f"{name} is {_shown(scalar)}; " + (more or f"it takes {kind.wanted}"))
        return MISSING

    def plain(self, node: Node) -> JsonValue:
        """Return a value of LiteLLM's own sections as it is, with references to the environment replaced."""
        match node:
            case Table():
                return {name: self.plain(value) for name, value in node.nodes.items()}
            case Items():
                return [self.plain(value) for value in node.nodes]
            case Scalar():
                scalar = self._expanded(node)
                if not isinstance(scalar, Scalar):
                    return None
                return scalar.text if scalar.variable else scalar.value
            case _:
                assert_never(node)

    def _expanded(self, node: Node) -> Node | None:
        """Return a scalar with a reference replaced by the variable's value; None after a problem."""
        if not (isinstance(node, Scalar) and isinstance(node.value, str) and node.value.startswith(REFERENCE)):
            return node
        name = node.value.removeprefix(REFERENCE).strip()
        if name not in self._environ:
            shown = quoted_name(name)
            remedy = (
                f"set it, or remove {REFERENCE}{name}"
                if shown != UNSHOWN
                else "a key itself stands without os.environ/"
            )
            self.problem(node.line, f"the environment variable {shown} is not set; {remedy}")
            return None
        text = self._environ[name]
        return Scalar(resolve(text), text, node.line, variable=name)

    def _usable(self, line: int, name: str, value: Any) -> Any:
        """Return a value, or the template of a file that it names; ``MISSING`` after a problem."""
        if not isinstance(value, TemplateFile):
            return value
        path = self._folder / value.path.expanduser()
        try:
            return load_template(path)
        except TemplateProblem as problem:  # its line is that file's
            self.problem(line, f"{name}: {path}:{problem.line}: {problem.message}")
            return MISSING


MISSING = object()
"""Stands for a value that could not be read."""


def _shown(node: Node) -> str:
    """Return a wrong value for a message, but never a variable's value, which may be a secret."""
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if node.variable:
        return f"the value of the environment variable {node.variable}"
    if node.value is None:
        return "empty"
    if "://" in node.text:
        return "a URL"
    shown = quoted(node.text)
    return shown if isinstance(node.value, str) else shown.strip('"')


def _unknown(name: str, section: str, known_keys: Collection[str]) -> str:
    """Describe an unknown key: with the nearest key, or its section, or all known keys."""
    where = f" in {section}" if section else ""
    shown = quoted_name(name)
    near = difflib.get_close_matches(name[:_SHOWN_CHARACTERS], known_keys, n=1)
    homes = sorted({note.name.rpartition(".")[0] for note in key_notes() if note.name.endswith(f".{name}")})
    if near and not homes:  # a key of another section is better than a similar one
        return f'unknown key {shown}{where}; did you mean "{near[0]}"?'
    if name in _LITELLM_HOMES:
        return f"unknown key {shown}{where}; it belongs under {_LITELLM_HOMES[name]}"
    if homes:
        return f"unknown key {shown}{where}; it belongs under {' or '.join(homes)}"
    return f"unknown key {shown}{where}; known are: {', '.join(known_keys)}"
