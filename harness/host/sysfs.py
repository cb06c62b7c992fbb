"""Reading what the xe driver shows in sysfs: cards by PCI address, hwmon by name, and numbers or nothing."""

import os
import re
from pathlib import Path

ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
"""domain:bus:device.function"""
INTEGER = re.compile(r"-?[0-9]{1,20}")
ATTRIBUTE_BYTES = 4096
"""A sysfs attribute is one page at most."""


def read_text(path: Path | str) -> str:
    """The attribute without the blanks around it. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(handle, ATTRIBUTE_BYTES).decode("utf-8", "replace").strip()
    finally:
        os.close(handle)


def read_int(path: Path | str) -> int | None:
    """The attribute's number; None when it can't be read, or isn't one."""
    try:
        text = read_text(path)
    except OSError:
        return None
    return int(text) if INTEGER.fullmatch(text) else None


def xe_devices(sys_root: Path) -> dict[str, Path]:
    """PCI address -> device directory of every card that xe holds, in order of address; none without the driver.

    Raises OSError when the driver's directory can't be read.
    """
    driver = sys_root / "bus/pci/drivers/xe"
    try:
        names = sorted(entry.name for entry in driver.iterdir() if ADDRESS.fullmatch(entry.name))
    except FileNotFoundError:
        return {}
    return {name.lower(): driver / name for name in names}


def xe_hwmon(device: Path) -> Path | None:
    """The hwmon directory under a PCI device whose name is xe; its number says nothing."""
    try:
        entries = sorted((device / "hwmon").iterdir())
    except OSError:
        return None
    for entry in entries:
        try:
            if read_text(entry / "name") == "xe":
                return entry
        except OSError:
            continue
    return None


def debugfs_folders(address: str, dri: Path) -> list[Path]:
    """A card's folders under /sys/kernel/debug/dri, which only root may read; none without it.

    They are named by number or address; the file ``name`` in each says whose it is.
    """
    try:
        folders = sorted(dri.iterdir())
    except OSError:
        return []
    return [folder for folder in folders if f"dev={address}" in _words(folder / "name")]


def _words(path: Path) -> list[str]:
    try:
        return read_text(path).lower().split()
    except OSError:
        return []


def throttle(freq: Path) -> tuple[bool | None, tuple[str, ...]]:
    """Whether the card is throttled just now, and the active reasons by name (``reason_pl1`` is ``pl1``).

    True when the status or any reason says so; False when the status, or without one every reason, says no; else None.
    """
    folder = freq / "throttle"
    status = read_int(folder / "status")
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith("reason_"))  # noqa: PTH208
    except OSError:
        names = []
    values = {name.removeprefix("reason_"): read_int(folder / name) for name in names}
    active = tuple(name for name, value in values.items() if value)
    if active or (status is not None and status != 0):
        return True, active
    if status == 0 or (values and all(value == 0 for value in values.values()) and not (folder / "status").exists()):
        return False, ()
    return None, ()
