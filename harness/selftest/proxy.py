"""What Docker's own port proxy adds: the self-test's source in one container, asked through both addresses."""

import contextlib
import time
from collections.abc import Iterator
from uuid import uuid4

from docker.errors import DockerException
from docker.models.containers import Container
from docker.types import Mount

from harness.errors import LaunchError
from harness.lanes import Image
from harness.launch.container import FAULTS
from harness.launch.docker import DockerEngine, connect, own_labels
from harness.measure.selftest import Proxy
from harness.selftest.run import GAP_MS, SOURCE, TTFT_MS, compare_paths

PORT = 8000
START_S = 30.0


def measure_proxy(image: Image) -> Proxy:
    """Start the source in a container of ``image`` and compare its published port with its own address.

    Raises LaunchError in one sentence when no container can be started or reached.
    """
    found = DockerEngine().image(image)
    with _source(found.id) as container:
        deadline = time.monotonic() + START_S
        while True:
            container.reload()
            state, ports = container.attrs["State"], container.attrs["NetworkSettings"]["Ports"].get(f"{PORT}/tcp")
            networks = container.attrs["NetworkSettings"]["Networks"].values()
            address = next((item["IPAddress"] for item in networks if item["IPAddress"]), None)
            if not state["Running"] and state["Status"] == "exited":
                raise LaunchError(
                    "the self-test's container ended at once; its image has no python3 that runs source.py"
                )
            if ports and address and b"8000" in container.logs():
                return compare_paths(("127.0.0.1", int(ports[0]["HostPort"])), (address, PORT))
            if time.monotonic() > deadline:
                raise LaunchError(f"the self-test's container was not up within {START_S:g} s")
            time.sleep(0.1)


@contextlib.contextmanager
def _source(image_id: str) -> Iterator[Container]:
    client = connect()
    name = f"b70-bench-selftest-{uuid4().hex[:8]}"
    try:
        container = client.containers.create(
            image_id,
            ["/source.py", str(PORT), str(TTFT_MS), str(GAP_MS), "1", "0.0.0.0"],  # noqa: S104 - in the container
            entrypoint=["python3"],
            name=name,
            labels=own_labels(name, "selftest"),
            # As the first process of its container it doesn't hear SIGTERM, and nothing is lost with it.
            stop_signal="SIGKILL",
            mounts=[Mount("/source.py", str(SOURCE), type="bind", read_only=True)],
            ports={f"{PORT}/tcp": ("127.0.0.1", 0)},
            mem_limit="512m",
            memswap_limit="512m",
        )
        container.start()
        yield container
    except DockerException as error:
        raise LaunchError(f"the self-test's container can't be started ({' '.join(str(error).split())})") from None
    finally:
        # By its name: an interrupt may come between its creation and the answer.
        with contextlib.suppress(*FAULTS):
            client.api.remove_container(name, force=True)
        client.close()
