"""Log lines on standard error in vLLM's manner."""

import os
import sys
import time

_silent = False


def silence() -> None:
    """Write nothing from now on (fault ``silent-start``)."""
    global _silent  # noqa: PLW0603 - one process, one log
    _silent = True


def line(message: str, *, level: str = "INFO", role: str = "APIServer", source: str = "simulated.py:1") -> None:
    """One line as vLLM writes it: ``(APIServer pid=7) INFO 11-30 12:00:00 [simulated.py:1] message``."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    raw(f"({role} pid={os.getpid()}) {level} {stamp} [{source}] {message}")


def raw(text: str) -> None:
    """One line as uvicorn writes it, or any other that has no stamp."""
    if not _silent:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
