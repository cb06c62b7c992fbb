"""Runs ``bench`` commands one after the other, each in a fork of this process, which has the imports behind it.

stdin: a JSON list of words a line. stdout: ``{"code", "out", "err"}`` a line, once the command has ended.
"""

import json
import os
import sys
import tempfile
from typing import Any

import harness.campaign
import harness.cleaning
import harness.evidence.verify
import harness.face
import harness.launch.docker
from harness.cli import main

IMPORTED = (harness.campaign, harness.cleaning, harness.evidence.verify, harness.face, harness.launch.docker)


def run(words: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = ["bench", *words]
            main()  # leaves by SystemExit, through the end of this program
        _, status = os.waitpid(pid, 0)
        out.seek(0)
        err.seek(0)
        return {"code": os.waitstatus_to_exitcode(status), "out": out.read().decode(), "err": err.read().decode()}


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line))) + "\n")
        sys.stdout.flush()
