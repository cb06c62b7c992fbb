"""The recipe of the CPU image and the file that says what the image must be."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from harness.lanes import load_image

FOLDER = Path(__file__).resolve().parents[2] / "images"
RECIPE = FOLDER / "vllm-cpu" / "Dockerfile"


@pytest.fixture(scope="module")
def recipe() -> str:
    """Without comments, continued lines joined."""
    lines = [line for line in RECIPE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return "\n".join(lines).replace("\\\n", " ")


def test_the_recipe_makes_what_the_image_file_asks_for(recipe: str) -> None:
    image = load_image(str(FOLDER / "vllm-cpu.toml"))
    assert dict(re.findall(r'^LABEL (\S+)="([^"]+)"$', recipe, re.M)) == image.labels
    assert [json.loads(words) for words in re.findall(r"^ENTRYPOINT (.+)$", recipe, re.M)] == [image.entrypoint]
    assert re.findall(r"^ARG VLLM=(.+)$", recipe, re.M) == [image.version]
    assert image.labels["org.opencontainers.image.version"] == f"{image.version}+cpu"


def test_the_advice_names_the_recipe_and_a_reference(recipe: str) -> None:
    raw = tomllib.loads((FOLDER / "vllm-cpu.toml").read_text(encoding="utf-8"))
    tag, folder = re.fullmatch(r"build it with `docker build -t (\S+) (\S+)`", raw["obtain"]).groups()  # type: ignore[union-attr]
    assert tag in raw["references"]
    assert (FOLDER.parent / folder / "Dockerfile") == RECIPE
    for name in re.findall(r"^COPY (\S+) ", recipe, re.M):
        assert (RECIPE.parent / name).is_file()
