"""JSON text that is edited in place: what doesn't change keeps its bytes, and what does takes the file's own style."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.errors import UsageError
from harness.strangers import strict_json

MAX_BYTES = 8 * 1024 * 1024
"""Larger family files are refused; the seed has 10 KiB"""

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass
class Node:
    """A value and where it stands in the text: ``text[start:end]``."""

    value: Any
    start: int
    end: int
    items: list[tuple[str | int, int, "Node"]] = field(default_factory=list)
    """of an object or array: key or index, where the text before the value begins (after ``{``, ``[`` or a comma)"""


@dataclass(frozen=True)
class Style:
    """How a file writes what it holds."""

    indent: str | None
    """one level; None when everything stands on one line"""
    newline: str
    comma: str
    colon: str
    escaped: bool
    """whether characters outside ASCII are written as \\u escapes"""


def read(data: bytes, name: str) -> tuple[str, Node]:
    """The text and its tree. Raises UsageError in one sentence for what is no JSON that can be edited safely."""
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MiB; give a family file")
    try:
        text = data.decode("utf-8")
        value = strict_json(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can't be printed
        return text, _node(text, _space(text, 0))
    except RecursionError:
        raise UsageError(f"{name} nests too deeply; give a family file") from None
    except ValueError as error:
        raise UsageError(f"{name} is not JSON ({str(error)[:160]}); correct it, or give another family file") from None


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _node(text: str, at: int) -> Node:
    """The value at ``at``; the text is known to be JSON."""
    if text[at] in "{[":
        return _container(text, at)
    value, end = _DECODER.raw_decode(text, at)
    return Node(value, at, end)


def _container(text: str, start: int) -> Node:
    mapping = text[start] == "{"
    items: list[tuple[str | int, int, Node]] = []
    lead = start + 1
    at = _space(text, lead)
    while text[at] not in "}]":
        key: str | int = len(items)
        if mapping:
            key, at = _DECODER.raw_decode(text, at)
            at = _space(text, _space(text, at) + 1)
        node = _node(text, at)
        items.append((key, lead, node))
        at = _space(text, node.end)
        if text[at] == ",":
            lead = at + 1
            at = _space(text, lead)
    value: Any = {key: node.value for key, _, node in items} if mapping else [node.value for _, _, node in items]
    return Node(value, start, at + 1, items)


def style_of(text: str, root: Node) -> Style:
    """The file's own style, from its root object; the seed's (indent of one space, \\u escapes) by default."""
    newline = "\r\n" if "\r\n" in text else "\n"
    escaped = text.isascii()
    if not root.items:
        return Style(" ", newline, ",", ": ", escaped)
    _, lead, first = root.items[0]
    before = text[lead : first.start]
    space = before[: len(before) - len(before.lstrip())]
    colon = ": " if before.endswith(" ") else ":"
    if "\n" in space:
        return Style(space.rpartition("\n")[2] or " ", newline, ",", colon, escaped)
    second = root.items[1][1] if len(root.items) > 1 else None
    return Style(None, newline, ", " if second is not None and text[second] == " " else ",", colon, escaped)


def written(value: Any, style: Style, depth: int) -> str:
    """A new value as the file would write it, ``depth`` levels deep."""
    whole = json.dumps(
        value,
        ensure_ascii=style.escaped,
        allow_nan=False,
        indent=style.indent,
        separators=(style.comma.rstrip() if style.indent else style.comma, style.colon),
    )
    return whole if style.indent is None else whole.replace("\n", style.newline + style.indent * depth)


def edited(text: str, root: Node, value: Any) -> str:
    """The text with the root's value replaced; every part that is equal keeps its bytes and surroundings."""
    style = style_of(text, root)
    return text[: root.start] + _rendered(text, root, value, style, 0) + text[root.end :]


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three things, and keys stand in one order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _rendered(text: str, node: Node, value: Any, style: Style, depth: int) -> str:
    if same(node.value, value):
        return text[node.start : node.end]
    if type(node.value) is not type(value) or not isinstance(value, dict | list) or not value or not node.items:
        return written(value, style, depth)
    old = {key: (lead, child) for key, lead, child in node.items}
    new: dict[str | int, Any] = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    space = _lead_space(text, node)
    label: Callable[[str | int], str] = (
        (lambda key: json.dumps(key, ensure_ascii=style.escaped) + style.colon)
        if isinstance(value, dict)
        else (lambda _: "")
    )
    parts = []
    *_, (last, _, _) = node.items
    final = next(reversed(new))
    for key, item in new.items():
        if key in old:
            lead, child = old[key]
            # White space before a comma is the item's; that before the closing bracket is the container's.
            after = "" if key in (last, final) else text[child.end : _space(text, child.end)]
            parts.append(text[lead : child.start] + _rendered(text, child, item, style, depth + 1) + after)
        else:
            parts.append(space + label(key) + written(item, style, depth + 1))
    return text[node.start] + ",".join(parts) + text[node.items[-1][2].end : node.end]


def _lead_space(text: str, node: Node) -> str:
    """The white space before the last item, which a new one gets too."""
    _, lead, _ = node.items[-1]
    return text[lead : _space(text, lead)]


def decimals(text: str, nodes: list[Node], default: int) -> int:
    """How many decimals a file writes numbers with; ``default`` unless most of them are longer, or all are shorter.

    A number that ends in a zero is written shorter than it is, and one that was edited by hand may be longer: neither
    says how the others are rounded.
    """
    numbers = [node for node in nodes if isinstance(node.value, int | float) and not isinstance(node.value, bool)]
    places = [len(text[node.start : node.end].partition(".")[2]) for node in numbers]
    if not places or 0 < places.count(default) >= sum(count > default for count in places):
        return default
    return max(places)


def walk(node: Node, *keys: str) -> list[Node]:
    """Nodes under a path of keys, where ``*`` means every item."""
    if not keys:
        return [node]
    wanted = [child for key, _, child in node.items if keys[0] in ("*", key)]
    return [found for child in wanted for found in walk(child, *keys[1:])]
