"""A stranger's JSON → plain values: bounded, strict, every refusal one sentence. No value of it is trusted."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from harness.data import shown
from harness.errors import UsageError
from harness.strangers import strict_json

MAX_BYTES = 64 << 20
"""of one file"""
MAX_DEPTH = 40
MAX_VALUES = 3_000_000
"""values of one file"""
MAX_TEXT = 4000
"""characters of one text that are looked at"""
MAX_NUMBER = 1e15
"""larger magnitudes are no rate, count or time"""


@dataclass(frozen=True)
class Document:
    """One file as it was given."""

    name: str
    """relative POSIX name, as under sources/"""
    path: Path
    bytes: int
    sha256: str
    data: Any
    format: str


def parse(name: str, raw: bytes) -> Any:
    """Strict JSON with limits on size and depth. Raises UsageError."""
    if len(raw) > MAX_BYTES:
        _refuse(name, f"it is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8-sig")
        data = strict_json(text)
    except UnicodeDecodeError as error:
        _refuse(name, f"byte {error.start} is not UTF-8")
    except json.JSONDecodeError as error:
        _refuse(name, f"it is not JSON ({error.msg}, line {error.lineno} column {error.colno})")
    except RecursionError:
        _refuse(name, f"it is nested deeper than {MAX_DEPTH} levels")
    except ValueError as error:
        _refuse(name, f"it is not strict JSON ({shown(str(error), 80)})")
    if too_much := _exceeds(data):
        _refuse(name, too_much)
    return data


def _refuse(name: str, why: str) -> NoReturn:
    raise UsageError(f"{shown(name)} can't be imported because {why}; get the original file, or leave it out")


def _exceeds(data: Any) -> str:
    level, values = [data], 0
    for _ in range(MAX_DEPTH):
        values += len(level)
        if values > MAX_VALUES:
            return f"it holds more than {MAX_VALUES} values"
        level = [child for value in level for child in children(value)]
        if not level:
            return ""
    return f"it is nested deeper than {MAX_DEPTH} levels"


def children(value: Any) -> Iterator[Any]:
    """The values directly inside; none of a plain one."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its dotted name; an element of a list is ``name[]``."""
    yield path, value
    if isinstance(value, dict):
        for key, child in value.items():
            yield from walk(child, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for child in value:
            yield from walk(child, f"{path}[]")


def get(data: Any, *keys: str) -> Any:
    """The value under keys, one inside the other; None where one is missing."""
    for key in keys:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> Sequence[Any]:
    """The array, or an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """The string, bounded, or an empty one."""
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def digits(value: str) -> int | None:
    """The whole number that a text of at most 9 ASCII digits is; None for any other text."""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def number(value: Any) -> float | None:
    """A finite number of a believable size; None for anything else, true and false included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= MAX_NUMBER else None


def integer(value: Any) -> int | None:
    """A whole number of a believable size; None for anything else."""
    found = number(value)
    return None if found is None or not isinstance(value, int) else int(value)


def boolean(value: Any) -> bool | None:
    """True or false; None for anything else."""
    return value if isinstance(value, bool) else None
