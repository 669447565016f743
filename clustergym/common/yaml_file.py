"""Read an unchecked YAML file; whatever is wrong with it raises one `InputError`."""

from __future__ import annotations

import stat
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from clustergym.common.errors import InputError, nearest
from clustergym.common.reading import say_unreadable

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

LARGEST_BYTES = 4_000_000
DEEPEST = 40
"""Limit on levels of nesting; libyaml recurses on the C stack, and deeper files would crash the process."""
LARGEST_NODES = 100_000
"""Limit on the values of a file, counted with every alias written out."""
LONGEST_NUMBER = 100
"""Limit on the characters of a number; PyYAML's time to read one grows with the square of its length."""
KEYS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:int")
NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


@dataclass(frozen=True)
class YamlMapping:
    """A parsed YAML file whose top level is a mapping: its values, and the line number of each.

    Attributes
    ----------
    path : Path
    content : dict
        Plain values, as `yaml.safe_load` gives them.
    root : yaml.MappingNode
        The parsed nodes, with their positions in the file.
    """

    path: Path
    content: dict[str, Any]
    root: yaml.MappingNode

    def line(self, keys: Iterable[str | int]) -> int:
        """Return the line number, from 1, of the value at a path of keys, or of the last key that exists."""
        node: yaml.Node = self.root
        mark = node.start_mark
        for key in keys:
            step = _step(node, key)
            if step is None:
                break
            mark, node = step
        return int(mark.line) + 1

    def locate(self, error: InputError) -> InputError:
        """Return an error about a key of this file with the file's path and the key's line."""
        key = (error.field or "").strip(".")
        line = self.line(key.split("."))
        return InputError(error.message, file=self.path, line=line, field=key, remedy=error.remedy)


def read_mapping(path: Path) -> YamlMapping:
    """Read a YAML file whose top level is a mapping.

    Raises
    ------
    InputError
        If the file does not exist; is a folder, pipe or device; is empty, not UTF-8, not YAML or not a
        mapping; is too large (also once aliases are written out) or nested too deep; or contains a tag, a
        merge key, a repeated key, a reference to itself or a number in base 60.
    """
    return parse_mapping(_content(path), path)


def parse_mapping(content: bytes, path: Path) -> YamlMapping:
    """Parse the content of a YAML file whose top level is a mapping.

    Raises the errors of `read_mapping`.
    """
    documents = parse_documents(content, path)
    if len(documents) > 1:
        line = documents[1].line(())
        message = "is not valid YAML: another document (---) begins here"
        raise InputError(message, file=path, line=line, remedy="give a file of one document")
    return documents[0]


def parse_documents(content: bytes, path: Path) -> list[YamlMapping]:
    """Parse the content of a YAML file of one or several documents, each of which is a mapping.

    Documents without content are left out. Raises the errors of `read_mapping`.
    """
    text = _text(content, path)
    try:
        _check_events(text, path)
        roots = [root for root in _compose(text) if not _is_null(root)]
        if not roots:
            raise InputError("is empty", file=path, remedy="write the keys of the mapping")
        found = []
        for root in roots:
            _check_nodes(root, path)
            if not isinstance(root, yaml.MappingNode):
                message = f"is a {_name_node(root)}, not a mapping of keys"
                line = root.start_mark.line + 1
                raise InputError(message, file=path, line=line, remedy="write `key: value` lines")
            found.append(YamlMapping(path, _construct(root), root))
        return found
    except yaml.YAMLError as error:
        raise _input_error(error, path) from None
    except (RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        message = f"is not YAML that can be read: {error}"
        raise InputError(message, file=path, remedy="give a YAML file") from None


def _is_null(root: yaml.Node) -> bool:
    return isinstance(root, yaml.ScalarNode) and root.tag == "tag:yaml.org,2002:null" and not root.value


def _content(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise InputError("is not a regular file", file=path, remedy="save it to a file first")
        with path.open("rb") as stream:
            return stream.read(LARGEST_BYTES + 1)
    except IsADirectoryError:
        raise InputError("is a folder", file=path, remedy="give a YAML file") from None
    except FileNotFoundError:
        raise InputError("no such file", file=path, remedy=_nearest_file(path)) from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise say_unreadable(path, error) from None


def _text(content: bytes, path: Path) -> str:
    if len(content) > LARGEST_BYTES:
        raise InputError(f"is larger than {LARGEST_BYTES} bytes", file=path, remedy="give a YAML file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", file=path, line=line, remedy="save it as UTF-8") from None


def _nearest_file(path: Path) -> str:
    folder = path.parent
    try:
        present = [entry.name for entry in folder.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return f"there is no folder {folder} that can be read"
    return nearest(path.name, present)


def _check_events(text: str, path: Path) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        line = None if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise _too_deep(path, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise InputError(f"YAML tag {tag!r} is not allowed", file=path, line=line, remedy="remove it")


def _compose(text: str) -> list[yaml.Node]:
    loader = Loader(text)
    try:
        found = []
        while loader.check_node():
            found.append(loader.get_node())
        return found
    finally:
        loader.dispose()


def _construct(root: yaml.Node) -> Any:
    loader = Loader("")
    try:
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _check_nodes(root: yaml.Node, path: Path) -> None:
    written_out: dict[int, int] = {}
    above: set[int] = set()

    def visit(node: yaml.Node) -> int:
        """Return the number of values in a node, counted with its aliases written out."""
        line = node.start_mark.line + 1
        if id(node) in above:
            raise InputError("an anchor refers to itself", file=path, line=line, remedy="write the value out")
        if id(node) in written_out:
            return written_out[id(node)]
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node, path)
            return 1
        above.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys(node, path)
        total = written_out[id(node)] = 1 + sum(visit(child) for child in _children(node))
        if total > LARGEST_NODES:
            message = f"stands for more than {LARGEST_NODES:,} values once its aliases are written out"
            raise InputError(message, file=path, line=line, remedy="use fewer aliases")
        above.discard(id(node))
        return total

    visit(root)


def _check_scalar(node: yaml.ScalarNode, path: Path) -> None:
    if node.tag not in NUMBERS or (len(node.value) <= LONGEST_NUMBER and ":" not in node.value):
        return
    remedy = "put it in quotes, or write the number out"
    line = node.start_mark.line + 1
    if ":" in node.value:
        shown = node.value if len(node.value) <= LONGEST_NUMBER else f"{node.value[:20]}..."
        raise InputError(f"{shown} is a number in base 60 to YAML", file=path, line=line, remedy=remedy)
    message = f"a number of {len(node.value):,} characters, the longest allowed is {LONGEST_NUMBER}"
    raise InputError(message, file=path, line=line, remedy=remedy)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value)


def _check_keys(node: yaml.MappingNode, path: Path) -> None:
    seen: set[Hashable] = set()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(
                f"a {_name_node(key)} cannot be a key", file=path, line=line, remedy="use a word"
            )
        if key.tag == "tag:yaml.org,2002:merge":
            message = "merge keys (<<) are not allowed"
            raise InputError(message, file=path, line=line, remedy="write the keys out")
        if key.tag not in KEYS:
            message = f"{key.value} is not text to YAML, and a key must be text"
            raise InputError(message, file=path, line=line, field=key.value, remedy="put it in quotes")
        if key.value in seen:
            raise InputError("key stands twice", file=path, line=line, field=key.value, remedy="keep one")
        seen.add(key.value)


def _name_node(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "list"
    return "mapping" if isinstance(node, yaml.MappingNode) else "single value"


def _step(node: yaml.Node, key: str | int) -> tuple[yaml.Mark, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key].start_mark, node.value[key]
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return name.start_mark, value
    return None


def _too_deep(path: Path, line: int | None) -> InputError:
    message = f"is nested deeper than {DEEPEST} levels"
    return InputError(message, file=path, line=line, remedy="write it flatter")


def _input_error(error: yaml.YAMLError, path: Path) -> InputError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
    line = None if mark is None else mark.line + 1
    if "nesting depth" in problem:  # libyaml from 0.2.6 on has a limit of its own, of 1,000, and reads ahead.
        return _too_deep(path, line)
    return InputError(f"is not valid YAML: {problem}", file=path, line=line, remedy="correct it")


def field_name(keys: Sequence[str | int]) -> str:
    """Join the keys that lead to a value: `nodes[0].count` for ("nodes", 0, "count")."""
    name = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return name.removeprefix(".")
