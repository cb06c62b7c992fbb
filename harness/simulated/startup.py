"""From arguments to a listening server, with the log lines and the compile cache of a real start."""

import os
import signal
import socket
import time
from pathlib import Path

from harness.simulated import log
from harness.simulated.loop import Loop
from harness.simulated.memory import Eater
from harness.simulated.server import Server
from harness.simulated.settings import Settings

_GRACE_NS = 500_000_000
"""how long running requests may go on after SIGTERM"""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that doesn't listen yet. Raises OSError when another process listens on the port."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def compile_graph(settings: Settings) -> None:
    """Leave a graph file in the compile cache, or find one, and say so as vLLM does."""
    if settings.enforce_eager:
        log.line("Enforce eager set, disabling torch.compile and CUDAGraphs.", level="WARNING", source="vllm.py:1")
        return
    began = time.monotonic()
    found = False
    root = os.environ.get("VLLM_CACHE_ROOT")
    if root:
        graph = Path(root) / "torch_compile_cache" / "simulated" / "graph.bin"
        found = graph.exists()
        if not found:
            graph.parent.mkdir(parents=True, exist_ok=True)
            graph.write_bytes(b"simulated graph\n" * 64)
    took = time.monotonic() - began
    if found or "warm-cache" in settings.faults:
        message = f"Directly load the compiled graph(s) for dynamic shape from the cache, took {took:.3f} s"
        log.line(message, role="EngineCore", source="backends.py:1")
    else:
        log.line(f"Compiling a graph for dynamic shape takes {took:.2f} s", role="EngineCore", source="backends.py:1")
        log.line(f"torch.compile took {took:.2f} s in total", role="EngineCore", source="monitor.py:1")


def run(settings: Settings) -> int:
    """Start, serve, and end: the exit code of the process."""
    faults = settings.faults
    if "silent-start" in faults:
        log.silence()
    log.line(f"version 0.0.0+simulated, model {settings.name}", source="api_utils.py:1")
    log.line(f"non-default args: {_told(settings)}", source="api_utils.py:1")
    try:
        listener = bind(settings.host, settings.port)
    except OSError as error:
        return _taken(settings, error)
    loop = Loop()
    server = Server(settings, loop, listener)
    loop.on_signal((signal.SIGTERM, signal.SIGINT), lambda: server.shut_down(0, _GRACE_NS))
    if "ignores-term" in faults:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log.line("Initializing a simulated engine (v0.0.0+simulated)", role="EngineCore", source="core.py:1")
    if "dies-at-start" in faults:
        _crash()
        return 1
    log.line(f"Starting to load model {settings.name}...", role="Worker", source="model_runner.py:1")
    eater = Eater()
    while faults.get("eats-memory") == 0 and eater.eat():
        pass
    log.line("Loading weights took 0.00 seconds", role="Worker", source="default_loader.py:1")
    compile_graph(settings)
    _chatter(int(faults.get("chatty-log", 0)))
    log.line("init engine (profile, create kv cache, warmup model) took 0.00 s", role="EngineCore", source="core.py:1")
    if "silent-start" not in faults:
        if "slow-start" in faults:
            _open_later(server, loop, settings)
        elif not _open(server, settings):
            return server.exit_code
        if "never-ready" in faults:
            _report_waiting(loop)
    loop.run()
    log.raw("INFO:     Application shutdown complete.")
    return server.exit_code


def _chatter(size: int) -> None:
    """Fault ``chatty-log``: lines of 1 KiB."""
    for number in range(size // 1024):
        log.raw(f"DEBUG {number:8} ".ljust(1023, "."))


def _told(settings: Settings) -> dict[str, object]:
    """The settings of a real server, for the log; the faults stay untold, as in life."""
    told: dict[str, object] = {"host": settings.host, "port": settings.port, "served_model_name": [settings.name]}
    told |= {"max_model_len": settings.max_model_len, "max_num_seqs": settings.max_num_seqs}
    told |= {"enforce_eager": settings.enforce_eager, "tensor_parallel_size": settings.tensor_parallel_size}
    if settings.depth:
        told["speculative_config"] = {"method": "mtp", "num_speculative_tokens": settings.depth}
    return told


def _taken(settings: Settings, error: OSError) -> int:
    reason = (error.strerror or "").lower()
    address = f"('{settings.host}', {settings.port})"
    log.raw(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address {address}: {reason}")
    return 1


def _open(server: Server, settings: Settings) -> bool:
    try:
        server.listen()
    except OSError as error:
        server.exit_code = _taken(settings, error)
        return False
    log.line(f"Starting vLLM server on http://{settings.host}:{settings.port}", source="entry.py:1")
    log.raw(f"INFO:     Started server process [{os.getpid()}]")
    log.raw("INFO:     Application startup complete.")
    return True


def _open_later(server: Server, loop: Loop, settings: Settings) -> None:
    """Fault ``slow-start``: open after its seconds, with a line of progress each second."""
    opens_ns = time.monotonic_ns() + round(settings.faults["slow-start"] * 1e9)

    def look() -> None:
        left_ns = opens_ns - time.monotonic_ns()
        if left_ns > 0:
            log.line(f"Loading weights: {left_ns / 1e9:.0f} s left", role="Worker", source="default_loader.py:1")
            loop.at(min(opens_ns, time.monotonic_ns() + 1_000_000_000), look)
        elif not _open(server, settings):
            loop.stop()

    look()


def _report_waiting(loop: Loop) -> None:
    """Fault ``never-ready``: a line of log each 2 s."""
    log.line("Waiting for 1 local, 0 remote core engine proc(s) to start.", source="utils.py:1")
    loop.at(time.monotonic_ns() + 2_000_000_000, lambda: _report_waiting(loop))


def _crash() -> None:
    for text in (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "core.py", line 1, in run_engine_core',
        "RuntimeError: simulated fault: the engine dies while it starts",
    ):
        log.line(text, level="ERROR", role="EngineCore", source="core.py:1")
    log.raw("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
