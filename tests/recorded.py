"""Campaigns that were recorded on real vLLM servers (CPU backend, tiny model), as test data."""

import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "data" / "campaigns"


def campaign(name: str) -> Path:
    """The recorded campaign: tiny (strict, passed), ties (strict, withheld), ladder0, ladder3ties. Read only."""
    path = FOLDER / name
    if not path.is_dir():
        pytest.fail(f"tests/data/campaigns/{name} is missing; it belongs to the checkout")
    return path


def copy(name: str, to: Path) -> Path:
    """A copy to change, under its own name in ``to``."""
    return Path(shutil.copytree(campaign(name), to / name))
