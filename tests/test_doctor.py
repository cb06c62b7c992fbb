"""``bench doctor`` on this machine, on a written two-card host, and with each failure it knows made to happen."""

import json
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from harness.doctor import Asked, examine
from harness.doctor_docker import engine_lines, inside_lines
from harness.doctor_lines import Line, exit_code, unknown
from harness.host.model_files import pin
from harness.lanes import Image, load_lane
from harness.launch.docker import LABEL, own_labels, remove_ours
from harness.launch.programs import Ended
from harness.launch.runs import mark
from tests.bench import bench
from tests.card_host import CardHost, still_host
from tests.host.fault_lines import BENIGN, FAULTS, FIRST
from tests.host.trees import debugfs, memory_in_use, put
from tests.launch.conftest import BASE, docker_client
from tests.model_dirs import write_model

__all__ = ["docker_client"]

LANE = "qwen35-4b-w4a16"
ABSENT = "0" * 64


def states(lines: list[Line], name: str) -> list[str]:
    return [line.state for line in lines if line.name == name]


def one(lines: list[Line], name: str) -> Line:
    (found,) = [line for line in lines if line.name == name]
    return found


@pytest.fixture
def host(tmp_path: Path) -> CardHost:
    return still_host(tmp_path)


def look(host: CardHost, launcher: str = LANE, **changes: Any) -> list[Line]:
    return examine(Asked(launcher, roots=host.roots, out=host.home / "experiments", **changes)).lines


# This kind of machine


def test_a_machine_without_a_card(tmp_path: Path) -> None:
    if Path("/sys/bus/pci/drivers/xe").is_dir():
        pytest.skip("this machine has the driver")
    done = bench("doctor", "--json", cwd=tmp_path)
    assert (done.code, done.err) == (2, "")
    told = json.loads(done.out)
    assert (told["ok"], told["exit_code"]) == (False, 2)
    by_name = {line["name"]: line for line in told["lines"]}
    assert by_name["xe driver"]["state"] == "failure"
    assert by_name["xe driver"]["what"] == "no xe driver on this host"
    assert not any(name.startswith("card ") for name in by_name), "nothing is invented"
    assert told["host"]["cards"] == {"state": "not applicable", "value": None, "note": "no xe driver on this host"}
    assert not any(name.startswith("card ") for name in told["host"])
    for line in told["lines"]:
        assert line["do"] or line["state"] in ("ok", "not applicable", "unknown"), line


def test_a_table_for_a_person(tmp_path: Path) -> None:
    done = bench("doctor", "--launcher", "simulated", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    rows = {line.split("  ")[0]: line for line in done.out.splitlines()}
    for name in ("xe driver", "kernel log", "docker", "model"):
        assert "not applicable" in rows[name], done.out
    assert done.out.splitlines()[-1].endswith("next: bench strict --launcher simulated --model-dir DIR")


def test_a_launcher_that_does_not_exist(tmp_path: Path) -> None:
    done = bench("doctor", "--launcher", "nothing", cwd=tmp_path)
    assert done.code == 64 and "no launcher named 'nothing'" in done.sentence


# A host with two cards


def test_two_cards(host: CardHost) -> None:
    for card, address in enumerate(host.tree.addresses):
        debugfs(host.tree, card, address, guc="70.44.1", huc="8.2.10")
    memory_in_use(host.tree, 1, 29 * 2**30)
    host.say(BENIGN)
    lines = look(host)
    assert one(lines, "xe driver").what.startswith("2 cards: 0000:03:00.0, 0000:83:00.0")
    assert one(lines, "device nodes").state == "ok"
    assert one(lines, "cards alike").state == "ok"
    assert one(lines, "kernel log").what == "no fault of the cards on this boot, read from file"
    expected = {
        "nodes": "card1, renderD129, by-path pci-0000:03:00.0-card, pci-0000:03:00.0-render",
        "firmware": "GuC 70.44.1, HuC 8.2.10, driver xe",
        "ReBAR": "the host sees 32 GiB of the card's memory, all of it",
        "link": "16.0 GT/s PCIe x8",
        "IOMMU": "on, group 21",
        "power cap": "290 W, sustained limit 230 W",
        "clocks": "up to 2800 MHz, now 400 MHz",
        "throttling": "not throttled now",
        "memory": "32 MiB in use",
        "temperature": "package 47.001 °C, memory 52 °C, fan 1180 rpm",
    }
    for what, found in expected.items():
        line = one(lines, f"card 0000:03:00.0 {what}")
        if what == "link":
            assert line.what.startswith(found), line
        else:
            assert (line.state, line.what) == ("ok", found)
    held = one(lines, "card 0000:83:00.0 memory")
    assert (held.state, held.what) == ("warning", "29.0 GiB are in use, held by a process that can't be told")
    assert "numeric id" in one(lines, "card 0000:03:00.0 group").what
    assert {line.name.split(" ", 2)[1] for line in lines if line.name.startswith("card ")} == set(host.tree.addresses)


def test_what_is_wrong_with_a_card(host: CardHost) -> None:
    tree = host.tree
    tree.throttle(0, "pl1", "thermal")
    put(tree.freq(0) / "max_freq", 1200)
    put(tree.hwmon(1) / "power1_cap", 150_000_000)
    resource = (tree.device(1) / "resource").read_text().splitlines()
    resource[2] = f"0x{0x4000000000:016x} 0x{0x4000000000 + 256 * 2**20 - 1:016x} 0x{0x14220C:016x}"
    put(tree.device(1) / "resource", "\n".join(resource))
    (tree.dev / "dri/by-path" / f"pci-{tree.addresses[1]}-render").unlink()
    (tree.dev / "dri/by-path" / f"pci-{tree.addresses[1]}-render").symlink_to("../renderD199")
    lines = look(host)
    a, b = (f"card {address}" for address in tree.addresses)
    assert one(lines, f"{a} throttling") == Line(
        f"{a} throttling",
        "warning",
        "throttled now: pl1, thermal",
        "let the card cool, and look at its power supply and power cap",
    )
    assert one(lines, f"{a} clocks").what == "limited to 1200 MHz, the card can 2800 MHz"
    assert one(lines, f"{b} ReBAR").state == "warning"
    assert one(lines, f"{b} nodes").state == "failure" and "leads to no node" in one(lines, f"{b} nodes").what
    assert one(lines, "cards alike").state == "warning" and "power_cap_watts" in one(lines, "cards alike").what
    assert one(lines, f"{a} firmware").state == "unknown"


def test_faults_in_the_log(host: CardHost) -> None:
    for line in FAULTS:
        host.say(line)
    host.say(BENIGN)
    found = [line for line in look(host) if line.name == "kernel log"]
    assert [line.state for line in found] == ["failure"] * 21
    assert FIRST in found[0].what and "probes the cards first" in found[0].do
    assert exit_code(found) == 2


def test_an_unreadable_log_is_unknown_and_hinders_nothing(host: CardHost) -> None:
    host.log = host.home / "absent.log"
    line = one(look(host), "kernel log")
    assert (line.state, line.bad) == ("unknown", False)
    assert line.what == "file absent.log: No such file or directory" and "--kernel-log FILE" in line.do


def test_no_card_is_bound(host: CardHost) -> None:
    for address in host.tree.addresses:
        (host.tree.sys / "bus/pci/drivers/xe" / address).unlink()
    assert one(look(host), "xe driver").what == "the xe driver is loaded and holds no card"


def test_a_needed_unknown_counts() -> None:
    assert exit_code([unknown("a", "b")]) == 0
    assert exit_code([unknown("a", "b", needed=True)]) == 2


# Memory, swap, port


def test_memory_and_swap(host: CardHost) -> None:
    proc = host.home / "proc"
    put(proc / "meminfo", "MemTotal: 32000000 kB\nMemAvailable: 4194304 kB\nSwapTotal: 2097152 kB")
    roots = host.roots.__class__(host.roots.sys, host.roots.dev, proc, host.log)
    lines = examine(Asked(LANE, roots=roots, out=host.home)).lines
    memory, swap = one(lines, "memory"), one(lines, "swap")
    assert (memory.state, memory.do) == ("failure", "end other programs")
    assert memory.what == "4.0 GiB are available, launcher qwen35-4b-w4a16 waits for 12.0 GiB"
    assert (swap.state, swap.what) == ("warning", "2.0 GiB")


def test_a_launcher_that_lets_a_container_swap(host: CardHost) -> None:
    import harness.data

    text = harness.data.find("launchers", LANE, ".toml").read_text()
    path = host.home / "swaps.toml"
    path.write_text(text.replace('memory = "12g"', 'memory = "12g"\nmemory_swap = "20g"'))
    (line,) = look(host, launcher=str(path))
    assert (line.name, line.state) == ("launcher", "failure")
    assert "must equal container.memory" in line.what and "makes the xe driver fault" in line.what


def test_docker_that_cannot_limit_swap() -> None:
    info = {"ServerVersion": "1", "Driver": "overlay2", "MemoryLimit": True, "SwapLimit": False}
    memory = one(engine_lines(info, load_lane(LANE)), "container memory")
    assert memory.state == "failure" and "from swapping" in memory.what
    assert one(engine_lines({**info, "SwapLimit": True}, load_lane(LANE)), "container memory").state == "ok"
    assert one(engine_lines("it is not there", load_lane(LANE)), "docker").state == "failure"


def test_an_occupied_port(host: CardHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = one(look(host, "simulated", port=port), "port")
        assert (line.state, line.what) == ("failure", f"{port} can't be used (Address already in use)")
    assert one(look(host, "simulated", port=port), "port").state == "ok"


# The model


def test_a_model_directory(host: CardHost) -> None:
    directory = write_model(host.home / "weights")
    assert states(look(host, model_dir=directory), "model") == ["warning"]
    manifest = host.home / "tiny.model.json"
    manifest.write_text(json.dumps(pin(directory).as_json()))

    def model(**changes: Any) -> list[Line]:
        asked = Asked(LANE, model_dir=directory, model_manifest=str(manifest), roots=host.roots, out=host.home)
        return [line for line in examine(asked).lines if line.name == "model"]

    assert [line.state for line in model()] == ["ok"]
    weights = next(path for path in directory.iterdir() if path.suffix == ".safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    (changed,) = model()
    assert changed.state == "failure" and changed.what.startswith(f"{weights.name} has other content: sha256")
    weights.unlink()
    weights.symlink_to("gone")
    (dangling,) = model()
    assert (dangling.state, dangling.what) == (
        "failure",
        f"model file {weights.name} is a dangling link; download the file or remove the link",
    )


# Docker, with real containers


def image_file(folder: Path, *, ids: str = "", version: str = "0.32.0", files: str = "") -> str:
    path = folder / "cpu.toml"
    path.write_text(
        f'schema = 1\nname = "cpu"\ntitle = "CPU"\nreferences = ["{BASE}"]\n{ids}\nversion = "{version}"\n'
        f'entrypoint = ["vllm", "serve"]\nobtain = "build it again"\n{files}\n'
    )
    return str(path)


@pytest.mark.docker
def test_the_image_and_its_files(docker_client: Any, host: CardHost) -> None:
    probe = look(host, "tiny-cpu", image=image_file(host.home, files=f'[files]\n"/etc/os-release" = "{ABSENT}"'))
    wrong = one(probe, "image cpu file")
    assert wrong.state == "failure" and wrong.what.endswith(f", its file says {ABSENT}")
    real = wrong.what.split()[3].rstrip(",")
    lines = look(host, "tiny-cpu", image=image_file(host.home, files=f'[files]\n"/etc/os-release" = "{real}"'))
    assert [(line.name, line.state) for line in lines if line.name.startswith("image")] == [
        ("image cpu", "ok"),
        ("image cpu version", "ok"),
        ("image cpu file", "ok"),
    ]
    assert docker_client.images.get(BASE).id in one(lines, "image cpu").what
    assert one(lines, "image cpu version").what == "vLLM 0.32.0+cpu"
    missing = look(host, "tiny-cpu", image=image_file(host.home, files=f'[files]\n"/no/such" = "{ABSENT}"'))
    assert "/no/such can't be read (No such file or directory)" in one(missing, "image cpu file").what


@pytest.mark.docker
def test_a_wrong_image(docker_client: Any, host: CardHost) -> None:
    line = one(look(host, "tiny-cpu", image=image_file(host.home, ids=f'ids = ["sha256:{ABSENT}"]')), "image cpu")
    assert (line.state, line.do) == ("failure", "build it again")
    assert "which is not the pinned one" in line.what and docker_client.images.get(BASE).id in line.what
    other = one(look(host, "tiny-cpu", image=image_file(host.home, version="0.29.0")), "image cpu version")
    assert (other.state, other.what) == ("failure", "vLLM 0.32.0+cpu, its file says 0.29.0")


def test_an_image_whose_program_gives_no_answer() -> None:
    image = Image(schema=1, name="x", title="x", version="1", entrypoint=["vllm"], obtain="get it")
    for end in (Ended("timed out", None, "", "", 1.0, True), Ended("ended", 0, "{", "", 1.0, True)):
        (line,) = inside_lines(image, end)
        assert line.state == "unknown" and line.bad


@pytest.mark.docker
def test_a_leftover_container(docker_client: Any, host: CardHost) -> None:
    import subprocess
    import sys

    tell = "from harness.launch.runs import mark; print(mark())"
    dead = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True).stdout.strip()
    name = f"doctor-{uuid4().hex[:12]}"
    made = docker_client.containers.create(BASE, labels={**own_labels(name, "mtp0-a"), f"{LABEL}run": dead})
    try:
        (line,) = [line for line in look(host, "tiny-cpu") if name in line.what]
        assert (line.name, line.state, line.do) == ("leftovers", "failure", "bench clean removes it")
    finally:
        assert remove_ours(docker_client, made.id, stop_s=1, gone_s=20)
    alive = docker_client.containers.create(BASE, labels=own_labels(name, "mtp0-a"))
    try:
        (line,) = [line for line in look(host, "tiny-cpu") if name in line.what]
        assert line.state == "warning" and "the process that started it is running" in line.what
        assert mark()
    finally:
        assert remove_ours(docker_client, alive.id, stop_s=1, gone_s=20)
