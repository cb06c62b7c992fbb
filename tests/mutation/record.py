"""The survivors that are explained, in ``explained.toml``: by the words of their line, so that edits elsewhere don't
move them."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.mutation.mutants import Mutant

EXPLAINED = Path(__file__).with_name("explained.toml")

Key = tuple[str, str, int]
"""The line, the change, and which of those alike"""


def load(path: Path = EXPLAINED) -> dict[str, dict[Key, str]]:
    """By module: what survives, and why no test can tell it apart."""
    found: dict[str, dict[Key, str]] = {}
    for module, groups in tomllib.loads(path.read_text()).items():
        kept = found.setdefault(f"harness.{module}", {})
        for group in groups:
            for change, *nth in group["changes"]:
                key = (group["line"], change, nth[0] if nth else 1)
                assert key not in kept, f"{module} has {key} twice"
                kept[key] = group["why"]
    return found


def entry(module: str, mutant: Mutant) -> str:
    """A survivor as it would stand in the record, its explanation left to be written."""
    change = json.dumps([mutant.change, *([mutant.nth] if mutant.nth > 1 else [])], ensure_ascii=False)
    line = json.dumps(mutant.line, ensure_ascii=False)
    return f'[["{module.removeprefix("harness.")}"]]\nline = {line}\nchanges = [{change}]\nwhy = ""\n'


def stale(explained: Mapping[Key, str], present: Sequence[Mutant]) -> list[Key]:
    """Entries whose code isn't there any more."""
    keys = {mutant.key for mutant in present}
    return [key for key in explained if key not in keys]
