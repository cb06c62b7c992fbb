#!/usr/bin/env python3
"""Stands for ``vllm serve`` in the tests of the engines: takes any arguments, answers /health, obeys TINY."""

import http.server
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

knobs = os.environ.get("TINY", "").split(",")
if "ignore-term" in knobs:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
os.write(1, b"starting\n")
if "exit" in knobs:
    os.write(1, b"last words of this server\n")
    sys.exit(7)
if "split" in knobs:  # one character over two writes, and a byte that is no character
    for piece in (b"caf\xc3", b"\xa9 \xff end\n"):
        os.write(1, piece)
        time.sleep(0.05)
if "eat" in knobs:
    eaten = bytearray(1024**3)
if "write" in knobs:
    cache = Path("/cache/vllm")
    cache.mkdir()
    (cache / "compiled").write_text("x")
if "spoil" in knobs:
    try:
        Path("/model/weights").write_text("spoilt")
    except OSError as error:
        os.write(1, f"model: {error.strerror}\n".encode())
if "orphan" in knobs:  # a worker in a session of its own, deaf to SIGTERM, whose parent goes first
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    worker = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
    worker.stdout.readline()
if "chatty" in knobs:
    for number in range(10**9):
        os.write(1, b"line %d\n" % number)
        time.sleep(0.005)
if "title" in knobs:  # as setproctitle does: the process's memory of its own arguments is overwritten
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", "VLLM::Title"])


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


host, port = (sys.argv[sys.argv.index(flag) + 1] for flag in ("--host", "--port"))
http.server.HTTPServer((host, int(port)), Health).serve_forever()
