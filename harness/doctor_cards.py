"""Findings about the cards: driver, nodes, firmware, window into their memory, power, clocks, throttling."""

import os
from collections.abc import Iterable, Sequence

from harness.doctor_lines import Line, failure, ok, skipped, unknown, warning
from harness.errors import BenchError
from harness.host.card_memory import card_memory
from harness.host.cards import Card, find_cards
from harness.host.faults import KernelLine
from harness.host.roots import Roots
from harness.lanes import Lane

DRIVER = "xe driver"


def card_lines(lane: Lane, roots: Roots, log: Iterable[KernelLine]) -> list[Line]:
    """Everything about the cards, or that this launcher needs none."""
    if lane.card_env is None:
        return [skipped(DRIVER, f"launcher {lane.name} uses no card")]
    driver = roots.sys / "bus/pci/drivers/xe"
    if not driver.is_dir():
        loaded = (roots.sys / "module/xe").is_dir()
        what = "the xe driver is loaded and shows no devices" if loaded else "no xe driver on this host"
        return [
            failure(DRIVER, what, f"run launcher {lane.name} on a host with an Arc Pro B70 and its driver"),
            *_nodes(lane, roots),
        ]
    try:
        cards = find_cards(roots.sys, roots.dev, kernel_log=(line.text for line in log))
    except BenchError as error:
        return [unknown(DRIVER, str(error), "look at the rights of /sys", needed=True)]
    if not cards:
        return [
            failure(
                DRIVER,
                "the xe driver is loaded and holds no card",
                "look for the card with lspci -k; a card of another driver isn't used",
            ),
            *_nodes(lane, roots),
        ]
    most = max(lane.tensor_parallel)
    few = f"; TP{most} needs {most}" if len(cards) < most else ""
    first = cards[0]
    version = f", xe source {first.value('xe_srcversion')}" if first.value("xe_srcversion") else ""
    listed = ", ".join(card.address for card in cards)
    found = [ok(DRIVER, f"{len(cards)} card{'s' if len(cards) > 1 else ''}: {listed}{few}{version}")]
    found += _nodes(lane, roots)
    for card in cards:
        found += [*_card(card), _memory(card.address, roots)]
    return [*found, *_alike(cards)]


def _nodes(lane: Lane, roots: Roots) -> list[Line]:
    """The devices and folders that the launcher hands to its containers, by their places under the root of /dev."""
    if lane.container is None:
        return []
    wanted = [*lane.container.devices, *(bind.source for bind in lane.container.binds)]
    missing = [
        path for path in wanted if path.startswith("/dev/") and not (roots.dev / path.removeprefix("/dev/")).exists()
    ]
    if missing:
        return [
            failure(
                "device nodes",
                f"{', '.join(missing)} is not there",
                "load the card's driver; udev makes the nodes and by-path",
            )
        ]
    return [ok("device nodes", f"{', '.join(wanted)} are there")]


def _card(card: Card) -> list[Line]:
    name = f"card {card.address}"
    return [
        _paths(f"{name} nodes", card),
        _group(f"{name} group", card),
        _firmware(f"{name} firmware", card),
        _window(f"{name} ReBAR", card),
        _link(f"{name} link", card),
        _iommu(f"{name} IOMMU", card),
        _power(f"{name} power cap", card),
        _clocks(f"{name} clocks", card),
        _throttle(f"{name} throttling", card),
        _heat(f"{name} temperature", card),
    ]


def _why(card: Card, *names: str) -> str:
    return "; ".join(dict.fromkeys(card.facts[name].note for name in names if card.facts[name].state != "measured"))


def _paths(name: str, card: Card) -> Line:
    node, render, paths, wrong = (card.value(key) for key in ("drm_card", "render_node", "by_path", "by_path_wrong"))
    if wrong:
        return failure(
            name,
            f"by-path {', '.join(wrong)} leads to no node of this card",
            "run udevadm trigger, or start the host again",
        )
    if not (node and render and paths):
        return failure(
            name,
            _why(card, "drm_card", "render_node", "by_path"),
            "reload the xe driver; udev makes the nodes and by-path",
        )
    return ok(name, f"{node}, {render}, by-path {', '.join(paths)}")


def _group(name: str, card: Card) -> Line:
    gid = card.value("render_gid")
    if gid is None:
        return unknown(name, _why(card, "render_gid"), "look at the rights of /dev/dri", needed=True)
    mine = gid in {os.getgid(), *os.getgroups()} or os.geteuid() == 0
    return ok(name, f"numeric id {gid}, added to the container; this user is {'' if mine else 'not '}in it")


def _firmware(name: str, card: Card) -> Line:
    guc, huc = card.value("guc_version"), card.value("huc_version")
    if guc is None:
        return unknown(
            name, f"GuC {_why(card, 'guc_version')}", "read the kernel log as root, or join the group systemd-journal"
        )
    return ok(name, f"GuC {guc}, HuC {huc or 'unknown'}, driver {card.value('driver')}")


def _window(name: str, card: Card) -> Line:
    size, full = card.value("bar_bytes"), card.value("bar_full")
    if full is None:
        return unknown(name, _why(card, "bar_bytes", "bar_largest_bytes", "bar_full"))
    if full:
        return ok(name, f"the host sees {size / 2**30:g} GiB of the card's memory, all of it")
    return warning(
        name,
        f"the host sees {size / 2**20:g} MiB of the card's memory",
        "switch on Resizable BAR and Above 4G Decoding in the firmware",
    )


def _link(name: str, card: Card) -> Line:
    speed, width, most = (card.value(key) for key in ("link_speed", "link_width", "link_width_maximum"))
    if speed is None or width is None:
        return unknown(name, _why(card, "link_speed", "link_width"))
    if most is not None and width < most:
        return warning(
            name, f"{speed} x{width}, the card can x{most}", "use a slot with more lanes; TP2 and loading depend on it"
        )
    return ok(name, f"{speed} x{width}")


def _iommu(name: str, card: Card) -> Line:
    fact = card.facts["iommu_group"]
    if fact.state == "unknown":
        return unknown(name, fact.note)
    return ok(name, fact.note if fact.value is None else f"on, group {fact.value}")


def _power(name: str, card: Card) -> Line:
    cap, most = card.facts["power_cap_watts"], card.value("power_max_watts")
    if cap.state == "unknown":
        return unknown(name, cap.note, "use a kernel whose xe driver has hwmon")
    said = "switched off" if cap.value is None else f"{cap.value:g} W"
    return ok(name, said + ("" if most is None else f", sustained limit {most:g} W"))


def _clocks(name: str, card: Card) -> Line:
    keys = ("frequency_actual_mhz", "frequency_maximum_mhz", "frequency_hardware_maximum_mhz")
    now, most, can = (card.value(key) for key in keys)
    if most is None or can is None:
        return unknown(name, _why(card, *keys))
    if most < can:
        return warning(
            name,
            f"limited to {most} MHz, the card can {can} MHz",
            "write the larger figure into freq0/max_freq as root",
        )
    return ok(name, f"up to {most} MHz, now {now if now is not None else 'unknown'} MHz")


def _throttle(name: str, card: Card) -> Line:
    throttled, reasons = card.value("throttled"), card.value("throttle_reasons")
    if throttled is None:
        return unknown(name, _why(card, "throttled"))
    if throttled:
        return warning(
            name,
            f"throttled now: {', '.join(reasons) or 'no reason given'}",
            "let the card cool, and look at its power supply and power cap",
        )
    return ok(name, "not throttled now")


def _heat(name: str, card: Card) -> Line:
    package, memory, fan = (card.value(key) for key in ("temperature_package_c", "temperature_vram_c", "fan_rpm"))
    if package is None and memory is None:
        return unknown(name, _why(card, "temperature_package_c", "temperature_vram_c"))
    parts = [("package", package, "°C"), ("memory", memory, "°C"), ("fan", fan, "rpm")]
    return ok(
        name, ", ".join(f"{what} {'unknown' if value is None else f'{value:g} {unit}'}" for what, value, unit in parts)
    )


def _memory(address: str, roots: Roots) -> Line:
    name, memory = f"card {address} memory", card_memory(address, roots)
    if memory.used_bytes is None:
        return unknown(name, memory.why, "run as root to see what holds a card")
    if memory.too_much:
        who = ", ".join(f"{holder.name} {holder.pid}" for holder in memory.holders) or "a process that can't be told"
        return warning(
            name,
            f"{memory.used_bytes / 2**30:.1f} GiB are in use, held by {who}",
            "end it: no server is started beside it (bench clean removes what is left of ours)",
        )
    return ok(name, f"{memory.used_bytes / 2**20:.0f} MiB in use")


def _alike(cards: Sequence[Card]) -> list[Line]:
    """Two cards that are set up differently measure two things at once."""
    if len(cards) < 2:
        return []
    keys = ("device_id", "power_cap_watts", "frequency_maximum_mhz", "guc_version", "bar_bytes")
    other = [key for key in keys if len({card.value(key) for card in cards}) > 1]
    if other:
        said = "; ".join(f"{key}: {', '.join(str(card.value(key)) for card in cards)}" for key in other)
        return [warning("cards alike", said, "set both cards up alike before TP2")]
    return [ok("cards alike", "same device, power cap, clocks, firmware and window")]
