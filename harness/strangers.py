"""Files that a user names, and that somebody else may have written: read whole and bounded, parsed strictly.

Never waited for (a pipe), never without end (a device), never larger than said; what isn't as it should be is one
sentence that names the file. A link is followed: it is the user who named it. Evidence is read by
harness.evidence.files, which follows none.
"""

import json
import math
import os
import stat
import tomllib
from collections.abc import Callable
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import UsageError

OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe without a writer would keep an ordinary open waiting"""
MAX_TOML = 256 * 1024
"""Bytes of a launcher, image or site file"""
MAX_DEPTH = 100
"""Levels; pydantic's own models and a terminal's traceback are far below it"""
DIGITS = 4300
"""Python's own limit for a whole number that is read from text"""


def read_given(path: Path, limit: int, what: str, advice: str = "check the path") -> bytes:
    """The bytes of a regular file of at most ``limit`` bytes. ``what`` names its kind. Raises UsageError."""
    name = f"{what} {path.name or path}"
    try:
        handle = os.open(path, OPEN)
        with open(handle, "rb") as file:  # noqa: PTH123
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{name} is no regular file; {advice}")
            data = b"" if found.st_size > limit else file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{name} can't be read ({error.strerror}); {advice}") from None
    except ValueError:  # a NUL in its name
        raise UsageError(f"{what} {str(path)!r} can't be read (no file has such a name); {advice}") from None
    if found.st_size > limit or len(data) > limit:
        shown = f"{limit >> 20} MiB" if limit >> 20 else f"{limit >> 10} KiB"
        raise UsageError(f"{name} is larger than {shown}; {advice}")
    return data


def real(path: Path) -> Path:
    """``path.resolve()`` that raises nothing for links that lead round in a circle."""
    return Path(os.path.realpath(path))


def text_of(data: bytes, name: str, advice: str = "save it as UTF-8") -> str:
    """UTF-8 with or without a byte order mark. Raises UsageError."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 (byte {error.start}); {advice}") from None


def read_toml(path: Path, what: str, advice: str = "correct it") -> dict[str, Any]:
    """A table of texts, numbers, true and false. Raises UsageError.

    TOML knows NaN, infinity and dates, which no file of ours has, and which JSON, where it all ends up, lacks.
    """
    name = f"{what} {path.name}"
    text = text_of(read_given(path, MAX_TOML, what, advice), name)
    try:
        table = tomllib.loads(text)
        if wrong := _wrong(table):
            raise UsageError(f"{name} holds {wrong}; {advice}")
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}; correct that line") from None
    except RecursionError:
        raise UsageError(f"{name} nests too deeply; {advice}") from None
    except ValueError:  # the parser lets through what int() says
        raise UsageError(f"{name} has a whole number of more than {DIGITS} digits; {advice}") from None
    return table


def parse_json(data: bytes, refuse: Callable[[str], NoReturn]) -> Any:
    """Strict JSON: no NaN, no number beyond a double, no key twice, no half character, at most ``MAX_DEPTH`` levels.

    ``refuse`` gets the reason, as what follows *because*, and raises.
    """
    try:
        text = data.decode()
        value = strict_json(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        refuse("it is not strict JSON (half of a surrogate pair can't be written)")
    except UnicodeDecodeError as error:
        refuse(f"byte {error.start} is not UTF-8")
    except json.JSONDecodeError as error:
        refuse(f"it is not JSON ({error.msg}, line {error.lineno} column {error.colno})")
    except RecursionError:
        refuse(f"it is not strict JSON (deeper than {MAX_DEPTH} levels)")
    except ValueError as error:
        refuse(f"it is not strict JSON ({str(error)[:80]})")
    if _deeper(value):
        refuse(f"it is not strict JSON (deeper than {MAX_DEPTH} levels)")
    return value


def strict_json(text: str) -> Any:
    """JSON without NaN, numbers beyond a double and keys that stand twice. Raises ValueError and RecursionError."""
    return json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_once)


def _constant(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no JSON")


def _finite(literal: str) -> float:
    value = float(literal)
    if not math.isfinite(value):
        raise ValueError(f"{literal[:20]} is too large a number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _children(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _deeper(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _wrong(table: Any) -> str:
    """What in it can't be used, in words; empty when all of it can."""
    level, depth = [table], 0
    while level:
        for value in level:
            if isinstance(value, float) and not math.isfinite(value):
                return f"{value}, which is no number to compute with"
            if isinstance(value, datetime | date | time):
                return f"the date or time {value}, which no field is"
            texts = [value] if isinstance(value, str) else list(value) if isinstance(value, dict) else []
            if any("\0" in text for text in texts):
                return "a NUL character, which no program can be given"
        depth += 1
        if depth > MAX_DEPTH:
            return f"more than {MAX_DEPTH} levels"
        level = [child for one in level for child in _children(one)]
    return ""
