"""What the host is (contract section 8). Each fact is measured, unknown or not applicable; unknown is never clean."""

import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness import __version__

State = Literal["measured", "unknown", "not applicable"]

DEPENDENCIES = (
    "httpx",
    "h11",
    "numpy",
    "scipy",
    "docker",
    "pydantic",
    "typer",
    "rich",
    "zstandard",
    "prometheus-client",
)


class Fact(BaseModel):
    """One fact about the host."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    state: State
    value: Any = None
    """text, number or list; null unless measured"""
    note: str = ""
    """why it is unknown or not applicable, or where it was read"""


class Host(BaseModel):
    """Facts by name. Units are in the names."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    facts: dict[str, Fact]

    def value(self, name: str) -> Any:
        """The measured value, or None."""
        fact = self.facts.get(name)
        return fact.value if fact is not None and fact.state == "measured" else None

    def unknown(self) -> list[str]:
        """Names of the facts that are unknown, sorted."""
        return sorted(name for name, fact in self.facts.items() if fact.state == "unknown")


def _read(path: Path, note: str) -> Fact:
    try:
        return Fact(state="measured", value=path.read_text(encoding="utf-8", errors="replace").strip(), note=note)
    except OSError as error:
        return Fact(state="unknown", note=f"{note}: {error.strerror}")


def _meminfo(proc: Path, key: str) -> Fact:
    try:
        for line in (proc / "meminfo").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name == key:
                return Fact(state="measured", value=int(rest.split()[0]) * 1024, note="/proc/meminfo")
    except (OSError, ValueError, IndexError):
        pass
    return Fact(state="unknown", note=f"/proc/meminfo has no {key}")


def _cpu_model(proc: Path) -> Fact:
    try:
        for line in (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return Fact(state="measured", value=line.partition(":")[2].strip(), note="/proc/cpuinfo")
    except OSError:
        pass
    return Fact(state="unknown", note="/proc/cpuinfo names no model")


def _cards(sys_root: Path) -> Fact:
    """PCI addresses of the cards that the xe driver holds."""
    driver = sys_root / "bus/pci/drivers/xe"
    if not driver.is_dir():
        return Fact(state="not applicable", note="no xe driver on this host")
    try:
        addresses = sorted(entry.name for entry in driver.iterdir() if entry.name.count(":") == 2)
    except OSError as error:
        return Fact(state="unknown", note=f"xe driver: {error.strerror}")
    return Fact(state="measured", value=addresses, note="PCI addresses bound to xe")


def host_facts(*, proc: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> Host:
    """Read the host. Roots are parameters so that a recorded tree can be input."""
    facts = {
        "hostname": Fact(state="measured", value=platform.node(), note="uname"),
        "cpu_model": _cpu_model(proc),
        "cpu_threads": Fact(state="measured", value=os.cpu_count(), note="online processors"),
        "memory_bytes": _meminfo(proc, "MemTotal"),
        "memory_available_bytes": _meminfo(proc, "MemAvailable"),
        "swap_bytes": _meminfo(proc, "SwapTotal"),
        "kernel": Fact(state="measured", value=platform.release(), note="uname"),
        "boot_id": _read(proc / "sys/kernel/random/boot_id", "/proc/sys/kernel/random/boot_id"),
        "clocksource": _read(
            sys_root / "devices/system/clocksource/clocksource0/current_clocksource", "current_clocksource"
        ),
        "cards": _cards(sys_root),
        "python": Fact(state="measured", value=platform.python_version(), note="the harness's own"),
    }
    return Host(facts=facts)


def dependency_versions() -> dict[str, str]:
    """Versions of what the harness stands on; "absent" where a package isn't installed."""
    found = {}
    for name in DEPENDENCIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


class Tool(BaseModel):
    """Which harness measured."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    version: str
    commit: Fact
    dirty: Fact
    """whether the checkout had uncommitted changes"""
    dependencies: dict[str, str]


def tool_facts() -> Tool:
    """Version, commit and dirty flag of this project, and the versions of its dependencies."""
    checkout = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (checkout / ".git").exists():
        absent = Fact(state="not applicable", note="installed package, not a checkout")
        return Tool(version=__version__, commit=absent, dirty=absent, dependencies=dependency_versions())

    def ask(*words: str) -> str | None:
        done = subprocess.run(
            [git, "-C", str(checkout), *words], capture_output=True, text=True, check=False, timeout=20
        )
        return done.stdout.strip() if done.returncode == 0 else None

    commit, changes = ask("rev-parse", "HEAD"), ask("status", "--porcelain")
    failed = Fact(state="unknown", note="git did not answer")
    return Tool(
        version=__version__,
        commit=failed if commit is None else Fact(state="measured", value=commit, note="git"),
        dirty=failed if changes is None else Fact(state="measured", value=bool(changes), note="git"),
        dependencies=dependency_versions(),
    )
