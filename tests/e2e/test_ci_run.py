"""The script that checks everything runs exactly the test command that the README shows."""

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "run"


def test_the_script_runs_the_command_of_the_readme() -> None:
    (command,) = re.findall(r'^README_TEST="(.+)"$', SCRIPT.read_text(encoding="utf-8"), re.M)
    lines = [line.strip() for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()]
    assert command in [line.strip("`") for line in lines]


def test_the_script_is_whole() -> None:
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    assert SCRIPT.read_text(encoding="utf-8").splitlines()[0] == "#!/usr/bin/env bash"
