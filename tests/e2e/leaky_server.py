"""The simulated server, telling everything it knows: its environment and arguments in its log, and in every answer.

Runs in a container of the safety tests. What the model itself says stays what it was.
"""

import base64
import json
import os
import sys
import urllib.parse

from harness.simulated import log
from harness.simulated.connection import Connection
from harness.simulated.settings import parse
from harness.simulated.startup import run

SCRIPT = "<script>alert(1)</script>"
KNOWN = {**os.environ, "arguments": " ".join(sys.argv)}
respond, start_stream = Connection.respond, Connection.start_stream


def told() -> list[str]:
    """Every value that is known, plainly and in the forms in which programs print it."""
    lines = []
    for name, value in KNOWN.items():
        raw = value.encode("utf-8", "surrogateescape")
        forms = (value, json.dumps(value), repr(value), urllib.parse.quote(raw, safe=""), urllib.parse.quote_plus(raw))
        lines += [f"{name}={form}" for form in forms]
        lines += [f"{name}: {base64.b64encode(f'{before}:{value}'.encode()).decode()}" for before in ("", "u", "us")]
    return [line for line in lines if "\n" not in line]


def answer(self: Connection, status: int, body: bytes, content_type: str = "application/json") -> None:
    text = body.decode()
    if content_type.startswith("text/plain") and "# HELP" in text:
        body = "".join(f"# {line}\n" for line in told()).encode() + body
    elif content_type == "application/json" and body.startswith(b"{"):
        value = json.loads(body)
        if "vllm_config" in value:
            value |= {"environ": KNOWN, "told": told(), "note": SCRIPT}
        elif "version" in value:
            value["version"] += f" {SCRIPT} {KNOWN.get('HF_TOKEN', '')}"
        elif "choices" in value or "error" in value:
            value["environ"] = told()
        body = json.dumps(value).encode()
    respond(self, status, body, content_type)


def stream(self: Connection) -> None:
    """A first event of comments, in writes that cut values."""
    start_stream(self)
    comment = "".join(f": {line}\n" for line in told()).encode("utf-8", "surrogateescape") + b"\n"
    whole = b"%x\r\n%b\r\n" % (len(comment), comment)
    for at in range(0, len(whole), 999):
        self._send(whole[at : at + 999])


Connection.respond = answer  # type: ignore[method-assign]
Connection.start_stream = stream  # type: ignore[method-assign]

if __name__ == "__main__":
    for line in [*told(), SCRIPT]:
        log.raw(line)
    arguments = sys.argv[1:]
    while "--api-key" in arguments:
        at = arguments.index("--api-key")
        del arguments[at : at + 2]
    sys.exit(run(parse(arguments)))
