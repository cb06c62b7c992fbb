"""A Docker engine of the test's own, which can be killed and started again without harm to anybody else's."""

import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

import harness
from tests.launch.conftest import BASE

IMAGE = "b70-bench-e2e-test:slim"
UP_S = 60.0

SLIM = """
import os, re, subprocess, sys, sysconfig, tarfile
stdlib, program = sysconfig.get_path("stdlib"), os.path.realpath(sys.executable)
modules = [os.path.join(folder, name) for folder, _, names in os.walk(stdlib) for name in names if name.endswith(".so")]
told = subprocess.run(["ldd", program, *modules], capture_output=True, text=True).stdout
skipped = {"__pycache__", "test", "tests", "ensurepip", "idlelib", "lib2to3", "site-packages", "dist-packages"}
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as tar:
    for link in [*filter(os.path.islink, ("/bin", "/lib", "/lib64")), sys.executable]:
        tar.add(link, recursive=False)
    tar.add(program)
    tar.add(stdlib, filter=lambda entry: None if skipped & set(entry.name.split("/")) else entry)
    tar.dereference = True
    for path in set(re.findall(r"(/\\S+\\.so\\S*) \\(0x", told)):
        tar.add(path, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
"""
"""Prints Python and its libraries as a tar: loading the whole image of another server would take minutes."""


def why_not() -> str:
    """Why no engine can be started here; empty where one can."""
    if os.geteuid() != 0:
        return "a Docker engine of its own needs root"
    missing = [name for name in ("dockerd", "containerd", "ip", "umount", "docker") if shutil.which(name) is None]
    return f"this host has no {', '.join(missing)}" if missing else ""


class OwnDocker:
    """containerd and dockerd on directories, a socket and a bridge of their own; no iptables rule is touched."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="b70-engine-"))
        self.url = f"unix://{self.home}/d.sock"
        self._bridge = f"b70t{os.getpid() % 100_000_000}"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None
        self.live_restore = False
        self.freezer = Path(f"/sys/fs/cgroup/freezer/{self._bridge}/freezer.state")
        """of all its containers; there is one in cgroup v1 only"""
        self.image = IMAGE
        """of the simulated server, once it is loaded"""

    def begin(self) -> None:
        """Everything but the daemon, and the daemon."""
        for words in (
            ("link", "add", "name", self._bridge, "type", "bridge"),
            ("addr", "add", f"10.213.{os.getpid() % 250}.1/24", "dev", self._bridge),
            ("link", "set", self._bridge, "up"),
        ):
            subprocess.run(["ip", *words], check=True, capture_output=True)
        self._containerd = self._run(
            "containerd", "--root", f"{self.home}/croot", "--state", f"{self.home}/cstate", "--address", self._address
        )
        self.up()

    @property
    def _address(self) -> str:
        return f"{self.home}/c.sock"

    def _run(self, *words: str) -> "subprocess.Popen[bytes]":
        # Beside the engine and not below it, so that it outlives a dockerd that is killed, as on a real host.
        with (self.home / f"{words[0]}.log").open("ab") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def up(self, *, live_restore: bool = False) -> None:
        """Start the daemon, or start it anew where it must keep containers alive and doesn't (or the other way)."""
        if self._daemon is not None and self._daemon.poll() is None:
            if self.live_restore == live_restore:
                return
            self.down(signal.SIGTERM)
        self.live_restore = live_restore
        (self.home / "d.pid").unlink(missing_ok=True)
        options = ["--data-root", f"{self.home}/data", "--exec-root", f"{self.home}/exec", "--bridge", self._bridge]
        options += ["--pidfile", f"{self.home}/d.pid", "--host", self.url, "--containerd", self._address]
        options += ["--cgroup-parent", f"/{self._bridge}"]
        options += ["--iptables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=true"]
        self._daemon = self._run("dockerd", *options, *(["--live-restore"] if live_restore else []))
        deadline = time.monotonic() + UP_S
        while not self.answers():
            log = (self.home / "dockerd.log").read_text(errors="replace")[-2000:]
            assert self._daemon.poll() is None and time.monotonic() < deadline, f"dockerd didn't come up:\n{log}"
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            client = docker.DockerClient(base_url=self.url, timeout=5)
            try:
                return bool(client.ping())
            finally:
                client.close()
        except (DockerException, OSError):
            return False

    def send(self, number: signal.Signals) -> None:
        """A signal to the daemon alone."""
        assert self._daemon is not None
        self._daemon.send_signal(number)

    def down(self, number: signal.Signals) -> None:
        """A signal that ends it, until it has."""
        self.send(number)
        assert self._daemon is not None
        self._daemon.wait(UP_S)

    def client(self) -> Any:
        return docker.DockerClient(base_url=self.url, timeout=60)

    def load(self) -> None:
        """The image with the simulated server."""
        made = subprocess.run(
            ["docker", "run", "--rm", "-i", "--log-driver", "none", "--entrypoint", "/usr/bin/python3", BASE, "-"],
            input=SLIM.encode(),
            capture_output=True,
            check=True,
        )
        rootfs, package = self.home / "root.tar", Path(harness.__file__).parent
        rootfs.write_bytes(made.stdout)
        with tarfile.open(rootfs, "a") as tar:
            for path in [*package.glob("*.py"), *(package / "simulated").glob("*.py")]:
                tar.add(path, f"app/harness/{path.relative_to(package)}")
        changes = ['ENTRYPOINT ["python3", "-m", "harness.simulated"]', "WORKDIR /app", "LABEL bench.test=simulated"]
        client = self.client()
        repository, tag = IMAGE.split(":")
        try:
            client.api.import_image_from_file(str(rootfs), repository=repository, tag=tag, changes=changes)
        finally:
            client.close()
        rootfs.unlink()

    def end(self) -> None:
        """Nothing of it is left: containers, processes, mounts, bridge, files."""
        with suppress(Exception):
            self.send(signal.SIGCONT)
            self.up()
            client = self.client()
            for container in client.containers.list(all=True):
                container.remove(force=True)
            client.close()
        for process in (self._daemon, self._containerd):
            if process is not None and process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()
                process.wait()
        for shim in self._shims():
            with suppress(ProcessLookupError):
                os.kill(shim, signal.SIGKILL)
        mounts = [line.split(" ")[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(f"{self.home}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        for group in Path("/sys/fs/cgroup").glob(f"*/{self._bridge}"):
            with suppress(OSError):
                group.rmdir()
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)
        assert not self.home.exists(), f"{self.home} is left"

    def _shims(self) -> list[int]:
        """Processes that keep containers alive, told by the address of our own containerd."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if self._address.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found
