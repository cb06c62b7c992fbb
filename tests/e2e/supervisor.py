"""A container's first process that starts its server again whenever it ends, as supervisors do; SIGTERM ends both."""

import os
import signal
import subprocess
import sys

server: "subprocess.Popen[bytes] | None" = None


def end(*_: object) -> None:
    if server is not None:
        server.terminate()
    os._exit(0)  # not by waiting: the loop below holds the lock of that


signal.signal(signal.SIGTERM, end)
os.environ.pop("LC_CTYPE", None)  # Python sets it for its children, which were never asked to have it
while True:
    server = subprocess.Popen([sys.executable, "-m", "harness.simulated", *sys.argv[1:]])
    server.wait()
