"""Memory of the cards in use, as the driver and its clients tell it in written trees."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.host.card_memory import MOST_HELD, card_memory, wait_for_cards
from harness.host.roots import Roots
from tests.host.trees import client, memory_in_use, put, two_cards

A, B = "0000:03:00.0", "0000:83:00.0"
GIB = 2**30


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    tree = two_cards(tmp_path)
    (tmp_path / "proc").mkdir()
    return Roots(sys=tree.sys, dev=tree.dev, proc=tmp_path / "proc")


@pytest.mark.parametrize("file", ["vram0_mm", "tile0/vram_mm", "tile0/vram0_mm"])
@pytest.mark.parametrize("folder", ["0", A])
def test_the_driver_tells(tmp_path: Path, roots: Roots, folder: str, file: str) -> None:
    tree = two_cards(tmp_path / "other")
    memory_in_use(tree, 1, 5 * GIB, folder="1", file=file)
    memory_in_use(tree, 0, MOST_HELD, folder=folder, file=file)
    found = card_memory(A, Roots(sys=tree.sys, proc=roots.proc))
    assert (found.used_bytes, found.source, found.holders, found.too_much) == (MOST_HELD, "debugfs", [], False)


def test_who_holds_it(tmp_path: Path, roots: Roots) -> None:
    tree = two_cards(tmp_path / "other")
    memory_in_use(tree, 0, 29 * GIB)
    client(roots.proc, 4242, "VLLM::Worker", A, "29360128 KiB")
    client(roots.proc, 4242, "VLLM::Worker", A, "29360128 KiB", number=4)  # the same client, a second descriptor
    client(roots.proc, 77, "Xorg", A, "120 MiB", identity=8)
    client(roots.proc, 78, "other card", B, "31 MiB", identity=9)
    found = card_memory(A, Roots(sys=tree.sys, proc=roots.proc))
    assert found.too_much and found.source == "debugfs"
    assert [(holder.pid, holder.name, holder.bytes) for holder in found.holders] == [
        (4242, "VLLM::Worker", 28 * GIB),
        (77, "Xorg", 120 * 2**20),
    ]
    check = wait_for_cards([A, B], Roots(sys=tree.sys, proc=roots.proc), lambda text: None, wait_s=0)
    assert check.held == [
        "0000:03:00.0 still holds 29.0 GiB (processes VLLM::Worker 4242 with 28.0 GiB, Xorg 77 with 0.1 GiB)"
    ]


def test_clients_tell_where_the_driver_does_not(roots: Roots) -> None:
    client(roots.proc, 1, "a", A.upper(), str(3 * GIB))
    client(roots.proc, 2, "b", A, "1 MiB", identity=8)
    found = card_memory(A, roots)
    assert (found.used_bytes, found.source, found.too_much) == (3 * GIB + 2**20, "fdinfo", True)
    assert [holder.pid for holder in found.holders] == [1, 2]
    assert (card_memory(B, roots).used_bytes, card_memory(B, roots).source) == (0, "fdinfo")


@pytest.mark.parametrize("text", ["size: 12", "usage: many", "usage: -1", "usage: " + "9" * 30, ""])
def test_a_file_of_the_driver_that_says_nothing(tmp_path: Path, roots: Roots, text: str) -> None:
    tree = two_cards(tmp_path / "other")
    memory_in_use(tree, 0, 0)
    put(tree.sys / "kernel/debug/dri" / A / "vram0_mm", text)
    assert card_memory(A, Roots(sys=tree.sys, proc=roots.proc)).source == "fdinfo"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every process")
def test_the_processes_of_others_are_hidden(roots: Roots) -> None:
    client(roots.proc, 5, "hidden", A, "20 GiB")
    (roots.proc / "5/fdinfo").chmod(0)
    found = card_memory(A, roots)
    assert (found.used_bytes, found.source) == (None, "")
    assert found.why == "debugfs can't be read, and the processes of other users can't be looked into"
    client(roots.proc, 6, "seen", A, "20971520 KiB", identity=8)
    assert card_memory(A, roots).used_bytes == 20 * GIB, "enough is known"


def test_no_proc_is_unknown(tmp_path: Path) -> None:
    found = card_memory(A, Roots(sys=tmp_path / "sys", proc=tmp_path / "none"))
    assert (found.used_bytes, found.too_much) == (None, False) and found.why


def test_it_waits_until_the_driver_has_given_it_back(tmp_path: Path, roots: Roots) -> None:
    tree = two_cards(tmp_path / "other")
    memory_in_use(tree, 0, 20 * GIB)
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        if len(said) == 2:
            memory_in_use(tree, 0, GIB)

    check = wait_for_cards([A], Roots(sys=tree.sys, proc=roots.proc), progress)
    assert said == ["waiting for the cards' memory, 0000:03:00.0 still holds 20.0 GiB"] * 2
    assert (check.held, check.cards[0].used_bytes) == ([], GIB)


@given(st.text(max_size=300))
def test_any_text_of_a_client_is_read_or_left(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "9/fdinfo/3"
        path.parent.mkdir(parents=True)
        path.write_text(f"drm-client-id: 1\ndrm-pdev: {A}\n{text}", errors="replace")
        found = card_memory(A, Roots(sys=Path(home), proc=Path(home)))
        assert found.used_bytes is not None and found.used_bytes >= 0


def test_this_host_s_own_processes_can_be_read() -> None:
    found = card_memory("ffff:00:00.0", Roots())
    assert found.used_bytes in (0, None) and not found.too_much
