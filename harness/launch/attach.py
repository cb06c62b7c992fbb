"""The attach engine: a server that runs already, and of which nothing can be proven (contract section 1, fresh)."""

import socket
from urllib.parse import urlsplit

from harness.errors import UsageError
from harness.lanes import Image
from harness.launch.roles import LOOPBACK, utc_now
from harness.launch.server import Applied, Endpoint, ImageFacts, Places, ServerState, StopRecord, Within
from harness.plan import ServerPlan

CONNECT_S = 5.0
DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_url(url: str) -> Endpoint:
    """``http[s]://host[:port][/base][/v1]`` → an endpoint. Raises UsageError."""

    def wrong(why: str) -> UsageError:
        return UsageError(f"--url {why}; write for example http://127.0.0.1:8000")

    if "@" in url:
        raise wrong("must not hold a user or password, because it becomes evidence")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise wrong(f"is not a URL ({error})") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or any(c.isspace() for c in url):
        raise wrong("needs http:// or https:// and a host")
    if parts.query or parts.fragment:
        raise wrong("must not hold a query or fragment")
    if port == 0:
        raise wrong("has port 0, where nothing can answer")
    # The name may resolve to ::1 first, where vLLM doesn't listen.
    host = LOOPBACK if parts.hostname == "localhost" and parts.scheme == "http" else parts.hostname
    base = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Endpoint(host, port or DEFAULT_PORTS[parts.scheme], parts.scheme == "https", base)


class AttachedServer:
    """A server of somebody else; see ``RunningServer``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._since = utc_now()

    @property
    def endpoint(self) -> Endpoint:
        """Of the plan's URL."""
        return self._endpoint

    def direct_endpoint(self) -> Endpoint | None:
        """None: nothing stands between."""
        return None

    @property
    def server_id(self) -> str:
        """``url:<url>``: equal for two attempts on one server, which therefore can't be a pair."""
        return f"url:{self._endpoint.url}"

    def applied(self) -> Applied:
        """Empty but for the id: nothing of it can be read back."""
        return Applied(
            server_id=self.server_id,
            image_id=None,
            entrypoint=[],
            arguments=[],
            env={},
            image_env={},
            mounts=[],
            devices=[],
            group_add=[],
            cap_add=[],
            security_opt=[],
            ulimits={},
            ipc=None,
            shm_size=None,
            memory=None,
            memory_swap=None,
            ports=[],
            privileged=None,
            restart_count=None,
            started_at="",
        )

    def within(self, plan: ServerPlan) -> Within:
        """Can't be known."""
        del plan
        return Within(source="", arguments=None, env=None, unknown="someone else started this server")

    def last_inspect(self) -> dict[str, object]:
        """The time since which it is known, as this is all."""
        return {"Id": self.server_id, "AttachedAt": self._since}

    def state(self) -> ServerState:
        """Running unless the connection is refused; a slow network says nothing about the server."""
        try:
            with socket.create_connection((self._endpoint.host, self._endpoint.port), timeout=CONNECT_S):
                return ServerState(running=True)
        except ConnectionRefusedError:
            return ServerState(running=False, error=f"nothing listens at {self._endpoint.url}")
        except (OSError, UnicodeError) as error:
            return ServerState(running=True, error=f"{self._endpoint.url} could not be reached ({error})")

    def changed(self) -> str:
        """Can't be known but by its counters."""
        return ""

    def log_bytes(self) -> int:
        """Its log is somewhere else."""
        return 0

    def owns_port(self) -> bool | None:
        """Can't be known."""
        return None

    def stop(self) -> StopRecord:
        """Does nothing: it is not ours."""
        return StopRecord(
            asked_at=utc_now(), seconds=0.0, killed=False, state=self.state(), gone=False, note="attached: left running"
        )


class AttachEngine:
    """See ``Engine``."""

    def image(self, image: Image) -> ImageFacts:
        """There is none. Raises UsageError."""
        raise UsageError(f"image {image.name} can't be proven for an attached server; leave --image out")

    def start(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> AttachedServer:
        """Starts nothing and makes nothing. Raises UsageError for a plan without a good URL."""
        del places, image
        return AttachedServer(parse_url(_url(plan)))

    def command(self, plan: ServerPlan, places: Places, image: ImageFacts | None) -> str:
        """A shell comment, as nothing is started."""
        del places, image
        return f"# attach to {parse_url(_url(plan)).url}"


def _url(plan: ServerPlan) -> str:
    if plan.url is None:
        raise UsageError("the attach engine needs the address of a server; give it with --url")
    return plan.url
