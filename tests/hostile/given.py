"""Each place where a command reads a file that its user names: the file, and the words that read it."""

from collections.abc import Callable
from pathlib import Path

from tests import recorded
from tests.bench import write_launcher

Setup = Callable[[Path], tuple[Path, list[str | Path]]]
"""Folder → the file that becomes wrong, and the words that read it"""


def campaign(folder: Path, *words: str | Path) -> list[str | Path]:
    return ["strict", "--mtp", "0", "--launcher", write_launcher(folder), "--dry-run", *words]


def launcher(folder: Path) -> tuple[Path, list[str | Path]]:
    path = write_launcher(folder)
    return path, ["strict", "--mtp", "0", "--launcher", path, "--dry-run"]


def image(folder: Path) -> tuple[Path, list[str | Path]]:
    lane = write_launcher(folder)
    text = lane.read_text().replace('engine = "simulated"', 'engine = "docker"').replace('["simulated"]', '["docker"]')
    lane.write_text(f'{text}\n[container]\nshm_size = "64m"\nmemory = "64m"\n')
    return folder / "image.toml", [
        "strict",
        "--mtp",
        "0",
        "--launcher",
        lane,
        "--image",
        folder / "image.toml",
        "--dry-run",
    ]


def site(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "site.toml", campaign(folder, "--site", folder / "site.toml")


def suite(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "suite.json", campaign(folder, "--suite", folder / "suite.json")


def ladder_suite(folder: Path) -> tuple[Path, list[str | Path]]:
    words = ["ladder", "--launcher", write_launcher(folder), "--suite", folder / "ties.json", "--dry-run"]
    return folder / "ties.json", words


def model_dir(folder: Path) -> Path:
    path = folder / "weights"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def manifest(folder: Path) -> tuple[Path, list[str | Path]]:
    words = campaign(folder, "--model-dir", model_dir(folder), "--model-manifest", folder / "pinned.json")
    return folder / "pinned.json", words


def manifest_of_verify(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "pinned.json", ["model", "check", model_dir(folder), folder / "pinned.json"]


def config(folder: Path) -> tuple[Path, list[str | Path]]:
    path = model_dir(folder)
    return path / "config.json", ["model", "pin", path, "-o", folder / "out.json"]


def index(folder: Path) -> tuple[Path, list[str | Path]]:
    path = model_dir(folder)
    return path / "model.safetensors.index.json", ["model", "pin", path, "-o", folder / "out.json"]


def text(folder: Path) -> tuple[Path, list[str | Path]]:
    texts = folder / "texts"
    texts.mkdir()
    for name in ("technical-prose", "python-code", "structured-documents"):
        (texts / f"{name}.txt").write_text("word " * 20_000)
    lane = write_launcher(folder)
    shape = "[shapes.depth]\nmax_model_len = 4096\nmax_num_seqs = 1\nmax_num_batched_tokens = 1024\n"
    lane.write_text(f"{lane.read_text()}\n{shape}")
    words = ["depth", "--mtp", "0", "--depths", "2048", "--launcher", lane, "--texts", texts, "--dry-run"]
    return texts / "technical-prose.txt", words


def family(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "family.json", ["promote", recorded.campaign("tiny"), "--family", folder / "family.json"]


def published(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "result.json", ["import", folder / "result.json", "-o", folder / "imported"]


def public_key(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "them.pub", ["verify", recorded.campaign("ladder0"), "--signed-by", folder / "them.pub"]


def private_key(folder: Path) -> tuple[Path, list[str | Path]]:
    return folder / "me.key", ["seal", recorded.campaign("ladder0"), "--key", folder / "me.key", "-o", folder / "seal"]


TOML: dict[str, Setup] = {"launcher": launcher, "image": image, "site": site}
JSON: dict[str, Setup] = {
    "suite": suite,
    "ties suite": ladder_suite,
    "manifest": manifest,
    "manifest of verify": manifest_of_verify,
    "family": family,
    "published result": published,
}
LENIENT: dict[str, Setup] = {"config.json": config, "index": index}
"""Files of others whose own readers take NaN and a key twice"""
OTHER: dict[str, Setup] = {"text": text, "public key": public_key, "private key": private_key}
EVERY = {**TOML, **JSON, **LENIENT, **OTHER}
