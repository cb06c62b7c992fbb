"""The faults that the simulated server can play: each changes exactly one thing.

A *suite-like* request is one to ``/v1/completions`` with more than one ``max_tokens``: the readiness probe and the chat
canaries are left alone, so that a campaign comes as far as the fault.
"""

from collections.abc import Iterable

from harness.errors import UsageError

FAULTS: dict[str, str] = {
    "tie": "N: with depth > 0, the ids of the first N suite prompts differ from token 57 on (G3 fails)",
    "unstable": "N: the ids of the first N suite prompts differ from token 57 on between any two servers (G1 fails)",
    "batch-tie": "[C=1]: from token 57 on, other ids in a request that starts as more than the C-th running one",
    "boundary": "with depth > 0, a prompt of exactly 1 + depth ids is answered with one id again and again",
    "last-position": "with depth > 0, the id at the very last place of a full context differs",
    "other-tokenizer": "with depth > 0, /tokenize gives another id at every hundredth place",
    "cached-tokens": "[K=16]: usage reports K cached prompt tokens",
    "cached-missing": "usage has no cached_tokens",
    "engine-dies": "[K=40]: after K ids of the third suite request an error event and [DONE]; the process exits 1",
    "engine-vanishes": "[K=40]: after K ids of the third suite request a reset; the process is gone without a word",
    "eats-memory": "N: during the N-th suite answer memory is taken until the kernel ends the process; 0: at its start",
    "mute": "[K=0]: after K model calls none is answered, not by a byte; /health stays 200",
    "ignores-term": "SIGTERM does nothing",
    "hangs": "[K=40]: after K ids of a suite request nothing more comes; the socket stays open",
    "error-event": "[K=40]: after K ids of a suite request an error event and [DONE]; the server lives on",
    "no-done": "a suite stream ends without [DONE]",
    "no-finish": "a suite stream has no finish_reason",
    "no-usage": "a suite stream has no usage, although it was asked for",
    "garbage": 'completions are id 0 ("!") again and again',
    "slow-start": "S: the port refuses connections for S seconds",
    "never-ready": "/health is 503 for ever; a log line every 2 s",
    "silent-start": "the port refuses connections for ever; nothing is logged",
    "dies-at-start": "the process logs a traceback and exits 1 before it listens",
    "null-ids": "token_ids is null in every chunk of a suite stream",
    "drops-id": "[I=30]: the id at index I is missing in a suite stream; usage counts it",
    "loses-end": "a suite stream that stops by itself lacks its last id, and usage and /metrics agree",
    "jit": "T: the first suite-like request at each new batch size waits T ms; the log tells of a compilation",
    "short": "[K=60]: a suite answer stops after K ids, whatever ignore_eos says",
    "left-open": "the connection stays open after [DONE], although Connection: close was asked",
    "chunks-cut": "every event of a suite stream comes in two writes, cut at an awkward byte",
    "one-read": "a suite stream is held back and sent at once at its end",
    "spec-off": "the depth that was asked for is ignored",
    "warm-cache": "the log says that a compiled graph was loaded, although the cache was empty",
    "chatty-log": "B: B bytes of log are written while the server starts",
    "bad-canary": "the answer to a multiplication is wrong by one",
    "wrong-model": "/v1/models lists another name",
    "foreign-request": "somebody else's request of 7 tokens is counted before each scrape of /metrics",
}
"""Every fault: name → one line, which begins with its argument where there is one."""

_NEEDS_ARGUMENT = ("tie", "unstable", "slow-start", "eats-memory", "chatty-log", "jit")
_DEFAULTS: dict[str, float] = {
    "batch-tie": 1,
    "cached-tokens": 16,
    "engine-dies": 40,
    "engine-vanishes": 40,
    "mute": 0,
    "hangs": 40,
    "error-event": 40,
    "drops-id": 30,
    "short": 60,
}

DEATHS = ("engine-dies", "engine-vanishes")
"""faults that strike the third suite request only"""
CUTS = (*DEATHS, "hangs", "error-event")
"""faults that end a stream after K ids"""


def parse_faults(texts: Iterable[str]) -> dict[str, float]:
    """``NAME`` or ``NAME:NUMBER`` each → name → number (0 for a fault without one).

    Raises UsageError (exit code 64) for an unknown name, a missing, needless or wrong number.
    """
    faults: dict[str, float] = {}
    for text in texts:
        name, colon, argument = text.partition(":")
        if name not in FAULTS:
            listing = "\n".join(f"  {known:16} {description}" for known, description in FAULTS.items())
            raise UsageError(f"--fault {text}: there is no fault {name!r}; use one of\n{listing}")
        takes = name in _NEEDS_ARGUMENT or name in _DEFAULTS
        if bool(colon) != takes and (colon or name in _NEEDS_ARGUMENT):
            raise UsageError(f"--fault {text}: {name} {'takes no' if colon else 'needs a'} number ({FAULTS[name]})")
        try:
            number = float(argument) if colon else _DEFAULTS.get(name, 0.0)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9 or (name != "slow-start" and number != int(number)):
            raise UsageError(f"--fault {text}: give a number from 0 on after the colon ({FAULTS[name]})")
        faults[name] = number
    return faults
