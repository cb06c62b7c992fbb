"""What the strict suite sends (contract section 3). Pure: bodies and names, no socket and no clock."""

import hashlib
import re
from typing import Any

from harness.suites import Suite

PATH = "/v1/completions"
MAX_TOKENS = 512
SEED = 42
READY_PROMPT = "Readiness probe of the bench harness: reply with any single word."
"""in no suite, so that it can't warm a measured prompt (contract section 2)"""


def strict_body(prompt: str, model: str) -> dict[str, Any]:
    """The measured request: streamed greedy completion of a raw prompt with ids and usage, EOS honoured."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "top_p": 1,
        "seed": SEED,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }


def whole_body(prompt: str, model: str) -> dict[str, Any]:
    """The same request, answered at once: of --stream-canary."""
    body = strict_body(prompt, model)
    del body["stream_options"]
    return body | {"stream": False}


def sha256(prompt: str) -> str:
    """Of a prompt's UTF-8 bytes."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def request_id(suite: Suite, n: int, prompt_id: str) -> str:
    """The X-Request-Id of the prompt at position ``n`` (from 0): ``bench-<suite_id>-<nn>-<id>``.

    Characters that don't belong in a header value become ``-``; ``nn`` keeps the result unique within a suite.
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", f"bench-{suite.suite_id}-{n:02d}-{prompt_id}")


def ready_body(model: str) -> dict[str, Any]:
    """The disclosed one-token request that ends the wait for a server (contract section 2)."""
    return {
        "model": model,
        "prompt": READY_PROMPT,
        "max_tokens": 1,
        "temperature": 0,
        "seed": SEED,
        "stream": False,
    }
