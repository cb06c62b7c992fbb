"""Cards of written sysfs trees: every fact, by PCI address, and unknown wherever something is missing."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import BenchError
from harness.host.cards import Card, find_cards, firmware_in_log
from harness.host.sysfs import xe_hwmon
from tests.host.trees import GIB, REASONS, Tree, debugfs, link, put, two_cards

KNOWN = {
    "driver": "xe",
    "xe_srcversion": "0123456789ABCDEF01234567",
    "device_id": "0xe223",
    "subsystem_id": "0x1102",
    "revision": "0x00",
    "by_path_wrong": [],
    "power_cap_watts": 290.0,
    "power_max_watts": 230.0,
    "temperature_vram_c": 52.0,
    "fan_rpm": 1180,
    "frequency_actual_mhz": 400,
    "frequency_requested_mhz": 450,
    "frequency_minimum_mhz": 400,
    "frequency_maximum_mhz": 2800,
    "frequency_hardware_maximum_mhz": 2800,
    "throttled": False,
    "throttle_reasons": [],
    "bar_bytes": 32 * GIB,
    "bar_largest_bytes": 32 * GIB,
    "bar_full": True,
    "link_speed": "16.0 GT/s PCIe",
    "link_width": 8,
    "link_speed_maximum": "32.0 GT/s PCIe",
    "link_width_maximum": 16,
    "fan_control_version": "203.0.4.0",
}
"""Of both cards of the written tree"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return two_cards(tmp_path)


def cards_of(tree: Tree) -> list[Card]:
    return find_cards(tree.sys, tree.dev)


def test_two_cards_by_address_not_by_number(tree: Tree) -> None:
    first, second = cards_of(tree)
    assert (first.address, second.address) == tree.addresses
    for card in (first, second):
        assert {name: card.value(name) for name in KNOWN} == KNOWN
        assert card.unknown() == ["guc_version", "huc_version"]  # debugfs is root's
        assert card.value("render_gid") == (tree.dev / "dri" / card.value("render_node")).stat().st_gid
    # card1 has the lower address: what belongs together stays together.
    names = ("drm_card", "render_node", "iommu_group", "energy_joules", "temperature_package_c")
    assert [first.value(name) for name in names] == ["card1", "renderD129", 21, 5000.000001, 47.001]
    assert [second.value(name) for name in names] == ["card0", "renderD128", 20, 5000.0, 47.0]
    assert first.value("by_path") == ["pci-0000:03:00.0-card", "pci-0000:03:00.0-render"]
    assert second.value("by_path") == ["pci-0000:83:00.0-card", "pci-0000:83:00.0-render"]
    assert first.facts["xe_version"].state == first.facts["voltage_regulator_version"].state == "not applicable"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another group")
def test_group_is_numeric_and_of_the_render_node(tmp_path: Path) -> None:
    tree = two_cards(tmp_path, gid=60_123)
    assert [card.value("render_gid") for card in cards_of(tree)] == [60_123, 60_123]


def test_link_is_read_at_the_cards_own_switch(tree: Tree) -> None:
    """The card itself says 2.5 GT/s x1 whatever its slot does."""
    assert (tree.device() / "current_link_speed").read_text() == "2.5 GT/s PCIe\n"
    assert cards_of(tree)[0].facts["link_speed"].note == "current_link_speed, at 0000:01:00.0, the card's switch"


def hidden_switch(tree: Tree, *, speed: str, width: int) -> Card:
    """A card handed to a guest: it stands at the guest's root port."""
    old = (tree.device() / ".").resolve()
    guest = tree.sys / "devices/pci0000:c0" / old.name
    shutil.move(old, guest)
    for place in ("bus/pci/drivers/xe", "bus/pci/devices"):
        (tree.sys / place / old.name).unlink()
        link(tree.sys / place / old.name, guest)
    put(guest / "current_link_speed", speed)
    put(guest / "current_link_width", width)
    return cards_of(tree)[0]


def test_without_its_switch_a_cards_own_word_is_not_taken(tree: Tree) -> None:
    card = hidden_switch(tree, speed="2.5 GT/s PCIe", width=1)
    assert {card.facts[name].state for name in ("link_speed", "link_width", "link_speed_maximum")} == {"unknown"}


def test_without_its_switch_a_real_link_is(tree: Tree) -> None:
    card = hidden_switch(tree, speed="32.0 GT/s PCIe", width=16)
    assert (card.value("link_speed"), card.value("link_width")) == ("32.0 GT/s PCIe", 16)


@pytest.mark.parametrize("reason", REASONS)
def test_active_reasons_by_name(tree: Tree, reason: str) -> None:
    tree.throttle(0, reason)
    first, second = cards_of(tree)
    assert (first.value("throttled"), first.value("throttle_reasons")) == (True, [reason])
    assert second.value("throttled") is False


def test_a_reason_beside_a_status_of_zero_counts(tree: Tree) -> None:
    put(tree.freq() / "throttle/reason_thermal", 1)
    assert cards_of(tree)[0].value("throttle_reasons") == ["thermal"]


def test_a_status_that_is_no_number_is_unknown(tree: Tree) -> None:
    put(tree.freq() / "throttle/status", "")
    card = cards_of(tree)[0]
    assert card.facts["throttled"].state == card.facts["throttle_reasons"].state == "unknown"


def test_small_window(tree: Tree) -> None:
    put(tree.device() / "resource", "0x0 0x0 0x0\n0x0 0x0 0x0\n0x4000000000 0x400fffffff 0x14220c")
    card = cards_of(tree)[0]
    assert (card.value("bar_bytes"), card.value("bar_full")) == (256 * 1024**2, False)
    (tree.device() / "resource2_resize").unlink()
    assert cards_of(tree)[0].value("bar_full") is False


def test_a_large_window_without_its_limit_is_not_called_full(tree: Tree) -> None:
    (tree.device() / "resource2_resize").unlink()
    card = cards_of(tree)[0]
    assert card.value("bar_bytes") == 32 * GIB
    assert card.facts["bar_full"].state == "unknown"


def test_links_that_lead_nowhere_or_to_the_other_card(tree: Tree) -> None:
    folder = tree.dev / "dri/by-path"
    (folder / "pci-0000:03:00.0-render").unlink()
    link(folder / "pci-0000:03:00.0-render", tree.dev / "dri/renderD128")
    (tree.dev / "dri/card0").unlink()
    first, second = cards_of(tree)
    assert first.value("by_path_wrong") == ["pci-0000:03:00.0-render"]
    assert (second.value("by_path_wrong"), second.value("by_path")) == (
        ["pci-0000:83:00.0-card"],
        ["pci-0000:83:00.0-render"],
    )


def test_iommu_off_is_not_applicable(tree: Tree) -> None:
    (tree.device() / "iommu_group").unlink()
    assert cards_of(tree)[0].facts["iommu_group"].state == "not applicable"


def test_power_limit_switched_off_is_no_limit_of_zero(tree: Tree) -> None:
    put(tree.hwmon() / "power1_cap", 0)
    assert cards_of(tree)[0].facts["power_cap_watts"].state == "not applicable"


@pytest.mark.parametrize("folder", ["0", "0000:03:00.0"])
def test_firmware_from_debugfs_by_the_address_in_it(tree: Tree, folder: str) -> None:
    debugfs(tree, 1, "1", guc="70.1.1", huc="1.1.1")
    debugfs(tree, 0, folder, guc="70.65.0", huc="8.2.10")
    first, second = cards_of(tree)
    assert (first.value("guc_version"), first.value("huc_version")) == ("70.65.0", "8.2.10")
    assert second.value("guc_version") == "70.1.1"


def test_firmware_from_the_kernel_log(tree: Tree) -> None:
    log = [
        "xe 0000:83:00.0: [drm] Tile0: GT0: Using GuC firmware from xe/bmg_guc_70.bin version 70.44.1",
        "xe 0000:83:00.0: [drm] Tile0: GT0: Using GuC firmware from xe/bmg_guc_70.bin version 70.65.0",
        "xe 0000:83:00.0: [drm] Tile0: GT1: Using HuC firmware from xe/bmg_huc.bin version 8.2.10",
        "xe 0000:83:00.0: [drm] GuC firmware (70.65.2) is recommended, but only (70.65.0) was found",
    ]
    first, second = find_cards(tree.sys, tree.dev, kernel_log=log)
    assert first.facts["guc_version"].state == "unknown"
    assert (second.value("guc_version"), second.value("huc_version")) == ("70.65.0", "8.2.10")
    assert second.facts["guc_version"].note == "kernel log"


@given(st.lists(st.text()))
def test_no_log_line_breaks_the_search_for_firmware(lines: list[str]) -> None:
    assert firmware_in_log(lines) == {}


def files_of(device: Path) -> list[Path]:
    return sorted(path for path in device.resolve().rglob("*") if path.is_file() or path.is_symlink())


def test_whatever_file_is_missing_only_its_own_facts_change_and_none_is_invented(tree: Tree, tmp_path: Path) -> None:
    before = cards_of(tree)[0]
    checked = 0
    for path in files_of(tree.device()):
        kept = tmp_path / "kept"
        path.rename(kept)
        after = cards_of(tree)[0]
        kept.rename(path)
        assert after.facts.keys() == before.facts.keys()
        for name, fact in after.facts.items():
            if fact.state == "measured" and not name.startswith("link_"):
                assert fact == before.facts[name], (path.name, name)
        checked += 1
    assert checked > 30


@pytest.mark.parametrize("junk", ["", "garbage", "1_000", "0x1g", "²", "\x00", "9" * 30])
def test_junk_in_a_file_is_unknown(tree: Tree, junk: str) -> None:
    numeric = {
        "power_cap_watts": tree.hwmon() / "power1_cap",
        "temperature_package_c": tree.hwmon() / "temp2_input",
        "fan_rpm": tree.hwmon() / "fan1_input",
        "frequency_actual_mhz": tree.freq() / "act_freq",
        "bar_bytes": tree.device() / "resource",
        "link_width": tree.device().resolve().parents[1] / "current_link_width",
    }
    for path in numeric.values():
        path.write_text(junk)
    assert set(cards_of(tree)[0].unknown()) >= set(numeric)


def test_the_hwmon_named_xe_is_found_at_any_number(tree: Tree) -> None:
    home = tree.device() / "hwmon"
    assert xe_hwmon(tree.device()) == tree.hwmon()
    tree.hwmon().rename(home / "hwmon0")
    assert xe_hwmon(tree.device()) == home / "hwmon0"
    put(home / "hwmon0/name", "i915")
    assert xe_hwmon(tree.device()) is None
    assert cards_of(tree)[0].facts["power_cap_watts"].state == "unknown"


def test_a_host_without_the_driver_has_no_cards(tmp_path: Path) -> None:
    assert find_cards(tmp_path, tmp_path) == []


def test_a_driver_that_holds_nothing(tmp_path: Path) -> None:
    put(tmp_path / "bus/pci/drivers/xe/new_id", "")
    link(tmp_path / "bus/pci/drivers/xe/module", tmp_path)
    assert find_cards(tmp_path, tmp_path) == []


def test_a_card_that_goes_while_it_is_looked_at(tmp_path: Path) -> None:
    link(tmp_path / "bus/pci/drivers/xe/0000:03:00.0", tmp_path / "gone")
    (card,) = find_cards(tmp_path, tmp_path)
    assert {fact.state for name, fact in card.facts.items() if not name.endswith(("_version", "srcversion"))} == {
        "unknown"
    }


def test_a_driver_directory_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    put(tmp_path / "bus/pci/drivers/xe", "")
    with pytest.raises(BenchError, match="can't be listed"):
        find_cards(tmp_path, tmp_path)
