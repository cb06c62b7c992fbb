"""Writes the sysfs and /dev trees of a host with cards, as the kernel describes them for the xe driver."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

REASONS = ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
GIB = 1024**3


@dataclass(frozen=True)
class Tree:
    """Roots of a written host, and how to change it."""

    sys: Path
    dev: Path
    addresses: tuple[str, ...]

    def device(self, card: int = 0) -> Path:
        return self.sys / "bus/pci/drivers/xe" / self.addresses[card]

    def hwmon(self, card: int = 0) -> Path:
        return next(entry for entry in (self.device(card) / "hwmon").iterdir() if (entry / "energy1_input").exists())

    def freq(self, card: int = 0) -> Path:
        return self.device(card) / "tile0/gt0/freq0"

    def throttle(self, card: int, *active: str) -> None:
        put(self.freq(card) / "throttle/status", int(bool(active)))
        for name in REASONS:
            put(self.freq(card) / f"throttle/reason_{name}", int(name in active))


def put(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def port(path: Path, *, device: str, speed: str, width: int) -> None:
    """A PCIe port above a card."""
    put(path / "vendor", "0x8086")
    put(path / "device", device)
    put(path / "class", "0x060400")
    put(path / "current_link_speed", speed)
    put(path / "current_link_width", width)
    put(path / "max_link_speed", "32.0 GT/s PCIe")
    put(path / "max_link_width", 16)


def two_cards(root: Path, *, gid: int | None = None, first_number: int = 0) -> Tree:
    """Two B70s, each behind its own switch, with numbers that run against the order of their addresses."""
    tree = Tree(root / "sys", root / "dev", ("0000:03:00.0", "0000:83:00.0"))
    put(tree.sys / "module/xe/srcversion", "0123456789ABCDEF01234567")
    (tree.sys / "bus/pci/drivers/xe").mkdir(parents=True)
    put(tree.sys / "bus/pci/drivers/xe/new_id", "")
    numbers = [first_number + 1, first_number]
    for address, number, bus in zip(tree.addresses, numbers, ("00", "80"), strict=True):
        _card(tree, address, number, bus, gid)
    return tree


def _card(tree: Tree, address: str, number: int, bus: str, gid: int | None) -> None:
    root = tree.sys / f"devices/pci0000:{bus}/0000:{bus}:01.0"
    tail = int(address.split(":")[1], 16)
    upper, lower = f"0000:{tail - 2:02x}:00.0", f"0000:{tail - 1:02x}:01.0"
    port(root, device="0x0db0", speed="16.0 GT/s PCIe", width=8)
    port(root / upper, device="0xe2ff", speed="16.0 GT/s PCIe", width=8)
    port(root / upper / lower, device="0xe2f0", speed="2.5 GT/s PCIe", width=1)
    device = root / upper / lower / address
    for name, value in {
        "vendor": "0x8086",
        "device": "0xe223",
        "subsystem_device": "0x1102",
        "revision": "0x00",
        "class": "0x030000",
        "current_link_speed": "2.5 GT/s PCIe",
        "current_link_width": "1",
        "max_link_speed": "2.5 GT/s PCIe",
        "max_link_width": "1",
        "resource2_resize": f"{0b1000000100000000:016x}",
        "lb_fan_control_version": "203.0.4.0",
    }.items():
        put(device / name, value)
    bars = [(0x84000000, 0x1000000), (0, 0), (0x4000000000, 32 * GIB), (0, 0)]
    put(
        device / "resource",
        "\n".join(f"0x{at:016x} 0x{at + size - 1 if size else 0:016x} 0x{0x14220C:016x}" for at, size in bars),
    )
    link(device / "driver", tree.sys / "bus/pci/drivers/xe")
    link(tree.sys / "bus/pci/drivers/xe" / address, device)
    link(tree.sys / "bus/pci/devices" / address, device)
    (tree.sys / f"kernel/iommu_groups/{20 + number}").mkdir(parents=True)
    link(device / "iommu_group", tree.sys / f"kernel/iommu_groups/{20 + number}")
    _sensors(tree, device, number)
    _nodes(tree, device, address, number, gid)


def _sensors(tree: Tree, device: Path, number: int) -> None:
    # Another sensor chip stands under the same device with the lower number.
    put(device / f"hwmon/hwmon{number}/name", "nvme")
    hwmon = device / f"hwmon/hwmon{number + 5}"
    for name, value in {
        "name": "xe",
        "energy1_input": 5_000_000_000 + number,
        "power1_cap": 290_000_000,
        "power1_max": 230_000_000,
        "temp2_input": 47_000 + number,
        "temp3_input": 52_000,
        "fan1_input": 1180,
    }.items():
        put(hwmon / name, value)
    link(tree.sys / "class/hwmon" / hwmon.name, hwmon)
    freq = device / "tile0/gt0/freq0"
    for name, value in {"act": 400, "cur": 450, "min": 400, "max": 2800, "rp0": 2800, "rpn": 400, "rpe": 800}.items():
        put(freq / f"{name}_freq", value)
    put(freq / "throttle/status", 0)
    for name in REASONS:
        put(freq / f"throttle/reason_{name}", 0)


def _nodes(tree: Tree, device: Path, address: str, number: int, gid: int | None) -> None:
    card, render = f"card{number}", f"renderD{128 + number}"
    for node in (card, render):
        put(device / f"drm/{node}/dev", f"226:{number}")
        link(tree.sys / "class/drm" / node, device / "drm" / node)
        put(tree.dev / "dri" / node, "")
        if gid is not None:
            with contextlib.suppress(PermissionError):
                os.chown(tree.dev / "dri" / node, -1, gid)
    link(tree.dev / f"dri/by-path/pci-{address}-card", tree.dev / "dri" / card)
    link(tree.dev / f"dri/by-path/pci-{address}-render", tree.dev / "dri" / render)


def debugfs(tree: Tree, card: int, folder: str, *, guc: str, huc: str) -> None:
    """What root may read under /sys/kernel/debug."""
    home = tree.sys / "kernel/debug/dri" / folder
    put(home / "name", f"xe dev={tree.addresses[card]} unique={tree.addresses[card]}")
    for gt, kind, version in (("gt0", "guc", guc), ("gt1", "huc", huc)):
        put(
            home / f"{gt}/uc/{kind}_info",
            f"{kind} firmware: xe/bmg_{kind}_70.bin\n\tstatus: RUNNING\n\twanted release version 70.44.1\n"
            f"\tfound release version {version}\n\tuCode: 1 bytes",
        )


def memory_in_use(tree: Tree, card: int, used: int, *, folder: str | None = None, file: str = "vram0_mm") -> None:
    """What root may read there of a card's memory, in bytes."""
    home = tree.sys / "kernel/debug/dri" / (folder or tree.addresses[card])
    put(home / "name", f"xe dev={tree.addresses[card]} unique={tree.addresses[card]}")
    put(home / file, f"  use_type: 1\n  use_tt: 0\n  size: {32 * 2**30}\n  usage: {used}\ndefault_page_size: 64KiB")


def client(proc: Path, pid: int, comm: str, address: str, held: str, *, number: int = 3, identity: int = 7) -> None:
    """An open device of a process, as fdinfo tells it."""
    put(proc / str(pid) / "comm", comm)
    put(
        proc / str(pid) / "fdinfo" / str(number),
        f"pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t685\ndrm-driver:\txe\ndrm-client-id:\t{identity}\n"
        f"drm-pdev:\t{address}\ndrm-total-vram0:\t{held}\ndrm-resident-vram0:\t{held}\ndrm-resident-gtt:\t192 KiB",
    )
