"""Engine by name. The Docker SDK is imported only for the docker engine, so that ``bench --help`` stays fast."""

from harness.lanes import EngineName
from harness.launch.attach import AttachEngine
from harness.launch.process import ProcessEngine
from harness.launch.server import Engine
from harness.launch.simulated import simulated_engine


def create_engine(name: EngineName) -> Engine:
    """The engine of that name; the docker engine connects at its first need and raises LaunchError then."""
    if name == "docker":
        from harness.launch.docker import DockerEngine

        return DockerEngine()
    if name == "process":
        return ProcessEngine()
    if name == "simulated":
        return simulated_engine()
    return AttachEngine()
