"""The JSON of vLLM's answers, as its OpenAI server writes it."""

import json
from dataclasses import dataclass
from typing import Any


def dumps(value: object) -> str:
    """JSON as vLLM's pydantic models write it: no spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class ApiError(Exception):
    """An answer that is an error object."""

    def __init__(self, status: int, message: str, param: str | None = None):
        super().__init__(message)
        self.status = status
        kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


ENGINE_DEAD = json.dumps(
    {
        "error": {
            "message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
    }
)
"""the data of the event that ends a stream whose engine has died"""


@dataclass(frozen=True, slots=True)
class UsageShape:
    """How usage is reported; ``cached`` is None under the fault ``cached-missing``."""

    cached: int | None

    def make(self, prompt: int, completion: int, *, stream: bool) -> dict[str, Any]:
        """The ``usage`` object."""
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
        }
        if self.cached is not None:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
            if not stream:
                usage["prompt_tokens_details"] |= {"created_cache_tokens": None, "multimodal_tokens": None}
        elif not stream:
            usage["prompt_tokens_details"] = None
        if not stream:
            usage["completion_tokens_details"] = None
        return usage


def model_list(name: str, max_model_len: int, created: int) -> dict[str, Any]:
    """The body of ``GET /v1/models``."""
    permission = {
        "id": "modelperm-simulated",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "simulated",
        "root": name,
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
    return {"object": "list", "data": [model]}
