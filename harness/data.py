"""Where data files are found: suites, images and launchers, which a lab edits every day and the wheel carries too."""

import os
from pathlib import Path
from typing import Literal

from harness.errors import UsageError
from harness.strangers import read_toml

Kind = Literal["suites", "images", "launchers", "models", "families", "texts"]

PROJECT = "b70-bench"
_PACKAGE = Path(__file__).resolve().parent
_SINGULAR: dict[str, str] = {
    "suites": "suite",
    "images": "image",
    "launchers": "launcher",
    "models": "model manifest",
    "families": "family file",
    "texts": "text",
}


def find(kind: Kind, name_or_path: str, suffix: str) -> Path:
    """The file that NAME or PATH means; ``suffix`` is the kind's extension with its dot, such as ``".json"``.

    A path (it contains a separator, or ends with the suffix and exists) is taken as is. A name is looked up in the
    current directory if that is a checkout of this project, then in the checkout the package is installed from, then
    in the files shipped with the package. Raises UsageError, naming the known ones, when there is no such file.
    """
    word = _SINGULAR[kind]
    path = Path(name_or_path)
    if os.sep in name_or_path or (os.altsep and os.altsep in name_or_path):
        if _is_file(path):
            return path
        what = "is not a file" if _exists(path) else "does not exist"
        raise UsageError(f"{word} path {shown(name_or_path)} {what}: give a {suffix} file or {_known(kind, suffix)}.")
    if name_or_path.endswith(suffix) and _is_file(path):
        return path
    name = name_or_path.removesuffix(suffix)
    for folder in _folders(kind):
        candidate = folder / (name + suffix)
        if name and _is_file(candidate):
            return candidate
    raise UsageError(
        f"no {word} named {shown(name_or_path)}: give the path of a {suffix} file or {_known(kind, suffix)}."
    )


def names(kind: Kind, suffix: str) -> list[str]:
    """The names that ``find`` knows for a kind, sorted, each once."""
    found: set[str] = set()
    for folder in _folders(kind):
        try:
            entries = list(folder.iterdir())
        except OSError:
            continue
        found.update(entry.name.removesuffix(suffix) for entry in entries if entry.suffix == suffix and _is_file(entry))
    return sorted(found)


def shown(text: str, limit: int = 120) -> str:
    """User input as it may stand inside a one-line message: quoted, escaped, at most ``limit`` characters of it."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


def _folders(kind: Kind) -> list[Path]:
    checkouts = [root for root in (Path.cwd(), _PACKAGE.parent) if _is_checkout(root)]
    return [root / kind for root in checkouts] + [_PACKAGE / "_data" / kind]


def _is_checkout(root: Path) -> bool:
    try:
        project = read_toml(root / "pyproject.toml", "file").get("project")
    except UsageError:
        return False
    return isinstance(project, dict) and project.get("name") == PROJECT


def _known(kind: Kind, suffix: str) -> str:
    known = names(kind, suffix)
    return f"one of {', '.join(known)}" if known else f"run where {kind}/ is found (none is known here)"


def _is_file(path: Path) -> bool:
    # A name too long for the file system, or with a NUL in it, is simply not there.
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
