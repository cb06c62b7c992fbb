"""The cards of this host, by PCI address and never by number (contract section 8); each fact may be unknown.

Paths and units are those of the kernel's own descriptions: sysfs-driver-intel-xe-hwmon, xe_gt_freq, xe_gt_throttle,
sysfs-bus-pci.
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.errors import BenchError
from harness.host.facts import Fact
from harness.host.sysfs import ADDRESS, INTEGER, debugfs_folders, read_text, throttle, xe_devices, xe_hwmon

INTEL = "0x8086"
BRIDGE_CLASS = "0x0604"
VRAM_BAR = 2
"""Index of the BAR through which the host sees a card's memory."""
SMALL_BAR = 256 * 1024**2
"""The window of a card whose BAR was not resized."""
OWN_LINK = ("2.5 GT/s PCIe", 1)
"""What an Arc card says of the link inside itself, whatever its slot does."""

FOUND = re.compile(r"found release version ([0-9][0-9.]*)")
LOADED = re.compile(r"xe ([0-9a-f:.]+): .*Using (GuC|HuC) firmware from \S+ version ([0-9][0-9.]*)", re.IGNORECASE)


class Card(BaseModel):
    """One card that the xe driver holds. Units are in the names of its facts."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    address: str
    """PCI, with its domain"""
    facts: dict[str, Fact]

    def value(self, name: str) -> Any:
        """The measured value, or None."""
        fact = self.facts.get(name)
        return fact.value if fact is not None and fact.state == "measured" else None

    def unknown(self) -> list[str]:
        """Names of the facts that are unknown, sorted."""
        return sorted(name for name, fact in self.facts.items() if fact.state == "unknown")


def find_cards(
    sys_root: Path = Path("/sys"), dev_root: Path = Path("/dev"), *, kernel_log: Iterable[str] = ()
) -> list[Card]:
    """Every card bound to xe, in order of PCI address; empty without the driver, or when it holds none.

    ``kernel_log`` (lines of this boot) tells the firmware versions where debugfs can't be read.
    Raises BenchError when the driver's directory can't be read.
    """
    try:
        devices = xe_devices(sys_root)
    except OSError as error:
        raise BenchError(
            f"the cards of the xe driver can't be listed ({error.strerror}); look at the rights of /sys"
        ) from None
    loaded = firmware_in_log(kernel_log)
    module = _module(sys_root)
    return [
        Card(
            address=address,
            facts={
                "driver": _driver(device),
                **module,
                "device_id": _text(device / "device"),
                "subsystem_id": _text(device / "subsystem_device"),
                "revision": _text(device / "revision"),
                **_nodes(address, device, dev_root),
                **_sensors(device),
                **_frequencies(device / "tile0/gt0/freq0"),
                **_bar(device),
                **_link(device),
                "iommu_group": _iommu(device),
                **_firmware(address, device, sys_root, loaded.get(address, {})),
            },
        )
        for address, device in devices.items()
    ]


def firmware_in_log(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """PCI address -> guc and huc -> version that the driver said it loaded; a later line replaces an earlier one."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        if match := LOADED.search(line[:2000]):
            found.setdefault(match[1].lower(), {})[match[2].lower()] = match[3]
    return found


def _known(value: Any, note: str = "") -> Fact:
    return Fact(state="measured", value=value, note=note)


def _unknown(why: str) -> Fact:
    return Fact(state="unknown", note=why)


def _text(path: Path, parse: Callable[[str], Any] = str) -> Fact:
    """One attribute; what can't be read, or isn't what it should be, is unknown."""
    try:
        text = read_text(path)
    except OSError as error:
        return _unknown(f"{path.name}: {error.strerror}")
    try:
        return _known(parse(text), path.name)
    except ValueError:
        return _unknown(f"{path.name}: {text[:40]!r} is not what this attribute holds")


def _number(text: str) -> int:
    if not INTEGER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _thousandth(text: str) -> float:
    return _number(text) / 1000


def _millionth(text: str) -> float:
    return _number(text) / 1_000_000


def _driver(device: Path) -> Fact:
    try:
        return _known((device / "driver").readlink().name, "driver")
    except OSError as error:
        return _unknown(f"driver: {error.strerror}")


def _module(sys_root: Path) -> dict[str, Fact]:
    """An in-tree module has no version of its own; its source's hash tells two builds apart."""
    module = sys_root / "module/xe"
    if not module.is_dir():
        absent = _unknown("module/xe is not there")
        return {"xe_version": absent, "xe_srcversion": absent}
    facts = {}
    for name, missing in (
        ("version", "the module has the kernel's own version"),
        ("srcversion", "this kernel keeps no hash of module sources"),
    ):
        path = module / name
        facts[f"xe_{name}"] = _text(path) if path.exists() else Fact(state="not applicable", note=missing)
    return facts


def _nodes(address: str, device: Path, dev_root: Path) -> dict[str, Fact]:
    try:
        names = sorted(entry.name for entry in (device / "drm").iterdir())
    except OSError as error:
        missing = _unknown(f"drm: {error.strerror}")
        return dict.fromkeys(("drm_card", "render_node", "render_gid", "by_path", "by_path_wrong"), missing)
    card = next((name for name in names if re.fullmatch(r"card[0-9]+", name)), None)
    render = next((name for name in names if re.fullmatch(r"renderD[0-9]+", name)), None)
    nodes = {name for name in (card, render) if name is not None}
    return {
        "drm_card": _known(card, "drm") if card else _unknown("drm: no card of this device"),
        "render_node": _known(render, "drm") if render else _unknown("drm: no render node of this device"),
        "render_gid": _gid(dev_root, render),
        **_by_path(address, dev_root, nodes),
    }


def _gid(dev_root: Path, render: str | None) -> Fact:
    """Numeric, because the group's name may not exist in an image."""
    if render is None:
        return _unknown("drm: no render node of this device")
    try:
        return _known((dev_root / "dri" / render).stat().st_gid, f"dri/{render}")
    except OSError as error:
        return _unknown(f"dri/{render}: {error.strerror}")


def _by_path(address: str, dev_root: Path, nodes: set[str]) -> dict[str, Fact]:
    """Links that lead to this card's nodes, and links in its name that lead elsewhere or nowhere."""
    folder = dev_root / "dri/by-path"
    try:
        links = sorted(entry for entry in folder.iterdir() if entry.name.startswith(f"pci-{address}-"))
    except OSError as error:
        missing = _unknown(f"dri/by-path: {error.strerror}")
        return {"by_path": missing, "by_path_wrong": missing}
    right: list[str] = []
    wrong: list[str] = []
    for link in links:
        target = link.resolve()
        good = target.name in nodes and target.exists()
        (right if good else wrong).append(link.name)
    return {
        "by_path": _known(right, "dri/by-path") if right else _unknown("dri/by-path: no link leads to this card"),
        "by_path_wrong": _known(wrong, "dri/by-path"),
    }


def _sensors(device: Path) -> dict[str, Fact]:
    attributes: dict[str, tuple[str, Callable[[str], Any]]] = {
        "power_cap_watts": ("power1_cap", _millionth),
        "power_max_watts": ("power1_max", _millionth),
        "energy_joules": ("energy1_input", _millionth),
        "temperature_package_c": ("temp2_input", _thousandth),
        "temperature_vram_c": ("temp3_input", _thousandth),
        "fan_rpm": ("fan1_input", _number),
    }
    hwmon = xe_hwmon(device)
    if hwmon is None:
        return dict.fromkeys(attributes, _unknown("hwmon: none of this device is named xe"))
    facts = {name: _text(hwmon / file, parse) for name, (file, parse) in attributes.items()}
    for name in ("power_cap_watts", "power_max_watts"):
        if facts[name].value == 0:
            facts[name] = Fact(state="not applicable", note=f"{facts[name].note}: 0, which is the limit switched off")
    return facts


def _frequencies(freq: Path) -> dict[str, Fact]:
    names = {"act": "actual", "cur": "requested", "min": "minimum", "max": "maximum", "rp0": "hardware_maximum"}
    facts = {f"frequency_{long}_mhz": _text(freq / f"{short}_freq", _number) for short, long in names.items()}
    throttled, reasons = throttle(freq)
    if throttled is None:
        why = _unknown("throttle: neither status nor reasons can be read")
        return {**facts, "throttled": why, "throttle_reasons": why}
    return {**facts, "throttled": _known(throttled, "throttle"), "throttle_reasons": _known(list(reasons), "throttle")}


def _bar(device: Path) -> dict[str, Fact]:
    """Size of the window into the card's memory, the largest one it offers, and whether they are the same."""
    size = _text(device / "resource", _bar_size)
    mask = _text(device / f"resource{VRAM_BAR}_resize", _largest_bar)
    if size.state == "unknown":
        return {"bar_bytes": size, "bar_largest_bytes": mask, "bar_full": size}
    if mask.state == "measured":
        full = _known(size.value >= mask.value, "bar_bytes against bar_largest_bytes")
    elif size.value <= SMALL_BAR:
        full = _known(False, "the window of a BAR that was not resized")
    else:
        full = _unknown(f"the largest BAR can't be read ({mask.note})")
    return {"bar_bytes": size, "bar_largest_bytes": mask, "bar_full": full}


def _bar_size(text: str) -> int:
    start, end = (int(word, 16) for word in text.splitlines()[VRAM_BAR].split()[:2]) if _bars(text) else (0, 0)
    if end <= start:
        raise ValueError(text)
    return end - start + 1


def _bars(text: str) -> bool:
    return len(text.splitlines()) > VRAM_BAR and len(text.splitlines()[VRAM_BAR].split()) >= 2


def _largest_bar(text: str) -> int:
    """Bit n of the mask stands for 2^n MiB."""
    mask = int(text, 16)
    if mask <= 0:
        raise ValueError(text)
    return int(2 ** (mask.bit_length() - 1) * 1024**2)


def _link(device: Path) -> dict[str, Fact]:
    """Speed and width in the slot: a card with a switch of its own tells them only at the switch's upper port."""
    try:
        real = device.resolve(strict=True)
    except OSError as error:
        gone = _unknown(f"device: {error.strerror}")
        return dict.fromkeys(("link_speed", "link_width", "link_speed_maximum", "link_width_maximum"), gone)
    chain = [real, *(parent for parent in real.parents if ADDRESS.fullmatch(parent.name))]
    switched = len(chain) > 3 and all(_intel_bridge(port) for port in chain[1:3])
    port = chain[2] if switched else real
    facts = {
        "link_speed": _text(port / "current_link_speed", _speed),
        "link_width": _text(port / "current_link_width", _width),
        "link_speed_maximum": _text(port / "max_link_speed", _speed),
        "link_width_maximum": _text(port / "max_link_width", _width),
    }
    if not switched and (facts["link_speed"].value, facts["link_width"].value) == OWN_LINK:
        own = _unknown("the card's own port says 2.5 GT/s x1 whatever its slot does, and its switch is not to be seen")
        return dict.fromkeys(facts, own)
    where = f"at {port.name}" + (", the card's switch" if switched else "")
    return {
        name: fact.model_copy(update={"note": f"{fact.note}, {where}"}) if fact.state == "measured" else fact
        for name, fact in facts.items()
    }


def _intel_bridge(port: Path) -> bool:
    try:
        return read_text(port / "vendor") == INTEL and read_text(port / "class").startswith(BRIDGE_CLASS)
    except OSError:
        return False


def _speed(text: str) -> str:
    if "GT/s" not in text:
        raise ValueError(text)
    return text


def _width(text: str) -> int:
    lanes = _number(text)
    if not 1 <= lanes <= 32:
        raise ValueError(text)
    return lanes


def _iommu(device: Path) -> Fact:
    try:
        return _known(_number((device / "iommu_group").readlink().name), "iommu_group")
    except FileNotFoundError:
        if device.is_dir():
            return Fact(state="not applicable", note="no iommu_group: the IOMMU is off")
        return _unknown("iommu_group: the device is gone")
    except (OSError, ValueError) as error:
        return _unknown(f"iommu_group: {error}")


def _firmware(address: str, device: Path, sys_root: Path, loaded: dict[str, str]) -> dict[str, Fact]:
    """From debugfs, which only root may read; else from what the driver said while it loaded."""
    facts = {}
    for kind in ("guc", "huc"):
        version = _from_debugfs(address, sys_root / "kernel/debug/dri", f"{kind}_info")
        if version is not None:
            facts[f"{kind}_version"] = _known(version, "debugfs")
        elif kind in loaded:
            facts[f"{kind}_version"] = _known(loaded[kind], "kernel log")
        else:
            facts[f"{kind}_version"] = _unknown("debugfs can't be read, and the kernel log doesn't tell")
    for name in ("fan_control", "voltage_regulator"):
        path = device / f"lb_{name}_version"
        absent = Fact(state="not applicable", note=f"{path.name}: not offered by this card or kernel")
        facts[f"{name}_version"] = _text(path) if os.path.lexists(path) else absent
    return facts


def _from_debugfs(address: str, dri: Path, name: str) -> str | None:
    for folder in debugfs_folders(address, dri):
        for path in [*folder.glob(f"gt*/uc/{name}"), *folder.glob(f"tile*/gt*/uc/{name}")]:
            try:
                if match := FOUND.search(path.read_text(encoding="utf-8", errors="replace")[:65536]):
                    return match[1]
            except OSError:
                continue
    return None
