"""Facts of a host from recorded trees: measured, unknown or not applicable, and unknown is never clean."""

import os
import platform
import subprocess
from pathlib import Path

import pytest

from harness.errors import LaunchError
from harness.host.facts import DEPENDENCIES, Fact, Host, dependency_versions, host_facts, tool_facts
from harness.host.memory import wait_for_memory

MEMINFO = "MemTotal:       131585464 kB\nMemFree: 1 kB\nMemAvailable:   120000000 kB\nSwapTotal:        8388604 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def rig(tmp_path: Path) -> tuple[Path, Path]:
    proc = tree(
        tmp_path / "proc",
        {
            "meminfo": MEMINFO,
            "cpuinfo": "processor : 0\nmodel name\t: Threadripper Pro\nmodel name\t: other\n",
            "sys/kernel/random/boot_id": "42f0dd4d-0000\n",
        },
    )
    sys_root = tree(tmp_path / "sys", {"devices/system/clocksource/clocksource0/current_clocksource": "tsc\n"})
    for name in ("0000:03:00.0", "0000:83:00.0", "module", "bind"):
        (sys_root / "bus/pci/drivers/xe" / name).mkdir(parents=True)
    return proc, sys_root


def test_recorded_rig_with_two_cards(rig: tuple[Path, Path]) -> None:
    host = host_facts(proc=rig[0], sys_root=rig[1])
    assert host.value("memory_bytes") == 131585464 * 1024
    assert host.value("memory_available_bytes") == 120000000 * 1024
    assert host.value("swap_bytes") == 8388604 * 1024
    assert host.value("cpu_model") == "Threadripper Pro"
    assert host.value("boot_id") == "42f0dd4d-0000"
    assert host.value("clocksource") == "tsc"
    assert host.value("cards") == ["0000:03:00.0", "0000:83:00.0"]
    assert host.unknown() == []


def test_what_can_not_be_read_is_unknown_and_has_no_value(tmp_path: Path) -> None:
    host = host_facts(proc=tmp_path, sys_root=tmp_path)
    assert host.unknown() == [
        "boot_id",
        "clocksource",
        "cpu_model",
        "memory_available_bytes",
        "memory_bytes",
        "swap_bytes",
    ]
    assert all(host.facts[name].value is None and host.facts[name].note for name in host.unknown())
    assert host.facts["cards"].state == "not applicable" and host.value("cards") is None


@pytest.mark.parametrize("meminfo", ["", "MemTotal: lots kB\n", "MemTotal:\n", "\xff\xfe"])
def test_odd_meminfo(tmp_path: Path, meminfo: str) -> None:
    tree(tmp_path, {"meminfo": meminfo})
    assert host_facts(proc=tmp_path, sys_root=tmp_path).facts["memory_bytes"].state == "unknown"


def test_this_host() -> None:
    host = host_facts()
    assert host.value("hostname") == platform.node()
    assert host.value("cpu_threads") == os.cpu_count()
    assert host.value("memory_bytes") > host.value("memory_available_bytes") > 0


def test_value_of_an_unmeasured_fact_is_none() -> None:
    host = Host(facts={"x": Fact(state="unknown", value=5)})
    assert host.value("x") is None and host.value("y") is None


def test_versions_of_what_we_stand_on() -> None:
    assert set(dependency_versions()) == set(DEPENDENCIES)
    assert "absent" not in dependency_versions().values()


def test_commit_of_the_checkout() -> None:
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    wanted = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    tool = tool_facts()
    assert tool.commit.value == wanted.stdout.strip()
    assert isinstance(tool.dirty.value, bool)


def test_memory_that_is_there_is_not_waited_for(rig: tuple[Path, Path]) -> None:
    said: list[str] = []
    wait_for_memory(2**30, said.append, meminfo=rig[0] / "meminfo")
    wait_for_memory(2**60, said.append, meminfo=rig[0] / "absent")
    assert said == [], "a host that doesn't say isn't waited for"


def test_memory_that_comes_late(rig: tuple[Path, Path]) -> None:
    meminfo = rig[0] / "meminfo"
    meminfo.write_text("MemAvailable: 1048576 kB\n")

    def progress(text: str) -> None:
        assert text == "waiting for memory, 1.0 of 2.0 GiB available"
        meminfo.write_text("MemAvailable: 4194304 kB\n")

    wait_for_memory(2**31, progress, meminfo=meminfo)


def test_memory_that_never_comes(rig: tuple[Path, Path]) -> None:
    words = r"^only 114.4 GiB of memory are available after 0.05 s, the launcher wants 1024.0 GiB; end other programs$"
    with pytest.raises(LaunchError, match=words):
        wait_for_memory(2**40, lambda _: None, meminfo=rig[0] / "meminfo", wait_s=0.05)
