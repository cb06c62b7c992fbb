"""Tells the version of vLLM and the sha256 of named files of the image it runs in. Arguments: the files."""

import hashlib
import json
import sys
from importlib import metadata


def digest(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def main() -> None:
    files: dict[str, dict[str, str]] = {}
    for path in sys.argv[1:]:
        try:
            files[path] = {"sha256": digest(path)}
        except OSError as error:
            files[path] = {"error": error.strerror or str(error)}
    try:
        version = metadata.version("vllm")
    except metadata.PackageNotFoundError:
        version = None
    sys.stdout.write(json.dumps({"vllm": version, "files": files}))


main()
