"""Parses YAML text into a tree with line numbers; no other module imports PyYAML.

This is the first step of loading, and ``reader.py`` interprets the keys. It uses PyYAML's nodes instead of its
objects, because only nodes have line numbers. It handles duplicate keys, tags, merge keys (``<<``) and aliases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from tidemark.config.masking import UNSHOWN, quoted_name
from tidemark.core.frozen import frozen

MAX_NODES = 100_000
"""The most nodes of a tree with its aliases expanded. A file for a thousand models has 20,000; a few lines of nested
aliases ("billion laughs") have more than fit into any memory."""

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
_KNOWN_TAGS = frozenset(_TAG + name for name in ("null", "bool", "int", "float", "str", "timestamp", "value"))
_ALIAS = re.compile(r"undefined alias '.*'", re.DOTALL)
"""PyYAML's words name it, and a password may begin with a star."""
_REMEDIES = {
    "'\\t'": "indent with spaces, YAML allows no tabs there",
    "cannot start any token": "put the value in quotes",
    "hexadecimal numbers": "put a path of Windows in single quotes",
    "unknown escape character": "put a text with backslashes in single quotes",
    "undefined alias": "put a text that starts with * in quotes",
    "expected alphabetic or numeric character": "put a text that starts with * or & in quotes",
    "mapping values are not allowed": "check the indentation, and put a text that holds ': ' in quotes",
    "could not find expected ':'": "check the indentation, and that a space follows the colon",
    "expected a single document": "remove the second '---'",
    "special characters are not allowed": "remove the control character",
}


class YamlError(Exception):
    """The text is not usable YAML; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@frozen
class Scalar:
    """A single value."""

    value: bool | float | str | None
    text: str
    """The text as the file has it."""
    line: int
    variable: str | None = None
    """The environment variable that the value came from."""


@frozen
class Items:
    """A list."""

    nodes: tuple[Node, ...]
    line: int


@frozen
class Table:
    """A mapping, with keys as written and in order."""

    nodes: Mapping[str, Node]
    key_lines: Mapping[str, int]
    line: int


Node = Scalar | Items | Table


def parse(text: str) -> tuple[Table, list[tuple[int, str]]]:
    """Parse the file's mapping, and return it with the problems (line, message) that did not prevent that.

    :raises YamlError: the text cannot be read any further
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        converter = _Converter()
        tree = Scalar(None, "", 1) if root is None else converter.node(root)
    except yaml.reader.ReaderError as error:
        raise YamlError(text.count("\n", 0, error.position) + 1, _with_remedy(error.reason)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if indentation := _wrong_indentation(text, error):
            raise YamlError(mark.line + 1 if mark else 1, indentation) from error
        context = f"{error.context}: " if error.context else ""
        raise YamlError(mark.line + 1 if mark else 1, _with_remedy(f"{context}{error.problem}")) from error
    except RecursionError as error:
        raise YamlError(1, "lists and mappings are nested too deeply") from error
    if isinstance(tree, Scalar) and tree.value is None:
        return Table({}, {}, 1), converter.problems
    if not isinstance(tree, Table):
        raise YamlError(tree.line, 'the file must be a mapping of keys to values, such as "server: {port: 8787}"')
    return tree, converter.problems


def resolve(text: str) -> bool | float | str | None:
    """Return the value that YAML gives to an unquoted text, for values of environment variables."""
    resolver = Resolver()
    tag = resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return _value(yaml.ScalarNode(tag, text))


def _wrong_indentation(text: str, error: yaml.MarkedYAMLError) -> str:
    """Say how the line of an error is indented wrongly; empty if the cause is another one."""
    mark, problem = error.problem_mark, error.problem or ""
    lines = text.splitlines()
    if mark is None or mark.line >= len(lines):
        return ""
    own = _indentation(lines[mark.line])
    before = next((place for place in reversed(range(mark.line)) if lines[place].strip(" ")[:1] not in ("", "#")), None)
    if before is None:
        return ""
    other = _indentation(lines[before])
    if "but found '<block" in problem and mark.column == own:
        return (
            f"this line begins after {_spaces(own)}, and line {before + 1} before it after {_spaces(other)}, so "
            "that it belongs to nothing above it; indent the lines of one block alike"
        )
    if "mapping values are not allowed" in problem and own > other and not lines[before].rstrip().endswith(":"):
        return f"this line is indented more than line {before + 1}, which has a value already; indent both alike"
    return ""


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _spaces(number: int) -> str:
    return f"{number} space{'' if number == 1 else 's'}"


def _shown_tag(tag: str) -> str:
    name = tag.replace(_TAG, "!!")
    shown = quoted_name(name.lstrip("!"))
    return name if shown != UNSHOWN else UNSHOWN


def _with_remedy(problem: str) -> str:
    problem = _ALIAS.sub("undefined alias", problem)
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in problem), "")
    return f"this is not YAML: {problem}" + (f"; {remedy}" if remedy else "")


def _value(node: yaml.ScalarNode) -> bool | float | str | None:
    """Return the value of a scalar; dates stay text, because LiteLLM's ``api_version: 2024-02-01`` means text."""
    constructor = SafeConstructor()
    try:
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return bool(constructor.construct_yaml_bool(node))
            case "int":
                return int(constructor.construct_yaml_int(node))
            case "float":
                return float(constructor.construct_yaml_float(node))
    except (ValueError, KeyError, IndexError, OverflowError):
        # YAML's patterns match, but it is no number ("0x_", or 5000 digits), or its tag is wrong
        return str(node.value)
    return str(node.value)


class _Converter:
    """Converts PyYAML's nodes; its state is the converted nodes, the open ones and the problems so far."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, str]] = []
        self._done: dict[int, tuple[Node, int]] = {}
        self._open: set[int] = set()

    def node(self, source: yaml.Node) -> Node:
        return self._sized(source)[0]

    def _sized(self, source: yaml.Node) -> tuple[Node, int]:
        """Return a node and its number of nodes, with aliases counted each time; an alias is converted once."""
        if id(source) in self._done:
            return self._done[id(source)]
        line = source.start_mark.line + 1
        if id(source) in self._open:
            raise YamlError(line, "an alias is inside of the value that it names; remove it")
        self._open.add(id(source))
        converted, size = self._convert(source, line)
        self._open.remove(id(source))
        if size > MAX_NODES:
            raise YamlError(line, f"expanded, the aliases make more than {MAX_NODES:,} values; use fewer")
        self._done[id(source)] = converted, size
        return converted, size

    def _convert(self, source: yaml.Node, line: int) -> tuple[Node, int]:
        if isinstance(source, yaml.MappingNode):
            return self._table(source, line)
        if isinstance(source, yaml.SequenceNode):
            parts = [self._sized(item) for item in source.value]
            return Items(tuple(node for node, _ in parts), line), 1 + sum(size for _, size in parts)
        if not isinstance(source, yaml.ScalarNode):
            raise YamlError(line, "this is neither a value, a list nor a mapping")
        if source.tag not in _KNOWN_TAGS | {_MERGE}:
            self.problems.append((line, f"the tag {_shown_tag(source.tag)} is not understood; remove it"))
        return Scalar(_value(source), str(source.value), line), 1

    def _table(self, source: yaml.MappingNode, line: int) -> tuple[Table, int]:
        nodes: dict[str, Node] = {}
        key_lines: dict[str, int] = {}
        merged: list[Table] = []
        size = 1
        for key, value in source.value:
            key_line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self.problems.append((key_line, "a key must be a plain text; put a text in braces into quotes"))
                continue
            node, part = self._sized(value)
            size += part
            if key.tag == _MERGE:
                merged += self._merged(node, key_line)
            elif key.value in nodes:
                first = key_lines[key.value]
                self.problems.append(
                    (key_line, f"the key {quoted_name(key.value)} is repeated, first on line {first}; keep one")
                )
            else:
                nodes[key.value], key_lines[key.value] = node, key_line
        for table in merged:  # YAML's merge key draft: own keys win over merged ones, earlier over later
            for name, node in table.nodes.items():
                if name not in nodes:
                    nodes[name], key_lines[name] = node, table.key_lines[name]
        return Table(nodes, key_lines, line), size

    def _merged(self, node: Node, line: int) -> list[Table]:
        sources = node.nodes if isinstance(node, Items) else (node,)
        tables = [source for source in sources if isinstance(source, Table)]
        if len(tables) != len(sources):
            self.problems.append((line, '"<<" takes a mapping or a list of mappings, such as "<<: *base"'))
        return tables
