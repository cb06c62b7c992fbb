"""Write the shipped texts that prompts of a known depth are cut from; the same bytes every time.

    python -m benchmarks.make_texts             technical-prose.txt and structured-documents.txt
    python -m benchmarks.make_texts --code REV  python-code.txt too, from this project's modules as of REV

The prose is the essays in ``benchmarks/prose`` followed by generated paragraphs. The code is a snapshot, made once: a
benchmark's text must not change whenever the project does.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.texts_prose import handwritten, paragraphs  # noqa: E402 - a script finds its package only now
from benchmarks.texts_random import Source  # noqa: E402
from benchmarks.texts_structured import documents  # noqa: E402

TEXTS = ROOT / "texts"
SIZE = 190_000
"""Bytes: more than 32,768 tokens of prose, at somewhat under five bytes each"""
WINDOW = 200
"""Characters: no stretch of so many occurs twice in a text"""
PROSE_SEED, STRUCTURED_SEED = 20_251, 20_252


def prose() -> str:
    """``technical-prose.txt``."""
    essays = handwritten()
    return f"{essays}\n{paragraphs(Source(PROSE_SEED), SIZE - len(essays.encode()))}"


def structured() -> str:
    """``structured-documents.txt``."""
    return documents(Source(STRUCTURED_SEED), SIZE)


def code(revision: str) -> str:
    """``python-code.txt``: whole modules of the harness in the order of their paths, each under its name.

    Passed over: a module too large for what is left, and one that says again what it or another said before.
    """
    names = git("ls-tree", "-r", "--name-only", revision, "harness").splitlines()
    text, seen = "", set[str]()
    for name in names:
        module = git("show", f"{revision}:{name}") if name.endswith(".py") else ""
        part = f"# module: {name.removesuffix('.py').replace('/', '.')}\n\n{module.strip()}\n\n"
        windows = [part[start : start + WINDOW] for start in range(len(part) - WINDOW)]
        new = seen.isdisjoint(windows) and len(set(windows)) == len(windows)
        if new and len(module) > WINDOW and len((text + part).encode()) <= SIZE:
            text += part
            seen.update(windows)
    return text


def git(*words: str) -> str:
    """What git says."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True, text=True).stdout


def main() -> None:
    """Write the files and say how large they are."""
    made = {"technical-prose.txt": prose(), "structured-documents.txt": structured()}
    if sys.argv[1:2] == ["--code"]:
        made["python-code.txt"] = code(sys.argv[2])
    TEXTS.mkdir(exist_ok=True)
    for name, text in made.items():
        (TEXTS / name).write_bytes(text.encode())
        sys.stdout.write(f"{name}: {len(text.encode()):,} bytes\n")


if __name__ == "__main__":
    main()
