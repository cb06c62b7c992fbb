"""What every engine does before it starts something: fill a plan's roles, make the cache, see that the port is free."""

import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from harness.errors import FreshnessError, LaunchError, UsageError
from harness.launch.proof import needs_model
from harness.launch.server import Places
from harness.plan import ServerPlan
from harness.redact import DROPPED

LOOPBACK = "127.0.0.1"


def utc_now() -> str:
    """UTC to the microsecond, ISO 8601 with a Z."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def filled(plan: ServerPlan, roles: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment with the roles replaced by what they are for one server."""

    def fill(text: str) -> str:
        for role, value in roles.items():
            text = text.replace(role, value)
        return text

    # A plan that comes out of evidence has no secrets to give.
    env = {name: fill(value) for name, value in plan.env.items() if value != DROPPED}
    return [fill(argument) for argument in plan.arguments], env


def model_directory(plan: ServerPlan, places: Places) -> Path | None:
    """The absolute directory of the weights, or None for a plan without one. Raises LaunchError when it is missing."""
    if not needs_model(plan):
        return None
    if places.model is None:
        raise LaunchError(f"server {plan.label} needs a model directory; give it with --model-dir")
    if not places.model.is_dir():
        raise LaunchError(f"the model directory of server {plan.label} doesn't exist; correct --model-dir")
    return places.model.absolute()


def make_cache(places: Places) -> None:
    """Make the cache directory. Raises FreshnessError when it exists, LaunchError when it can't be made."""
    try:
        places.cache.parent.mkdir(parents=True, exist_ok=True)
        places.cache.mkdir()
    except FileExistsError:
        raise FreshnessError(
            f"the cache directory {places.cache.name} exists already, so the server would not be fresh; "
            "remove it or choose another --out"
        ) from None
    except OSError as error:
        raise LaunchError(
            f"the cache directory {places.cache.name} can't be made ({error.strerror}); choose another --out"
        ) from None
    places.cache_made(places.cache)


def remove_cache(places: Places) -> None:
    """After a failed start. What a container's root wrote may stay."""
    shutil.rmtree(places.cache, ignore_errors=True)
    with suppress(OSError):
        if places.log.stat().st_size == 0:
            places.log.unlink()


def host_port(port: int | None) -> int:
    """``port`` when nobody listens there, or a free one for None.

    Raises LaunchError when it is taken: a stale server would answer in place of ours, and it would be healthy.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        # Only listeners count; connections in TIME_WAIT don't keep a server from binding.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((LOOPBACK, port or 0))
            return int(trial.getsockname()[1])
        except OverflowError:
            raise UsageError(f"--port {port} is not a port number; choose one between 1024 and 65535") from None
        except PermissionError:
            raise LaunchError(f"port {port} is reserved for the system; choose a --port above 1023") from None
        except OSError:
            raise LaunchError(
                f"port {port} on {LOOPBACK} is already taken by another server; stop it or choose another --port"
            ) from None
