"""Power, heat, clocks and throttling of the cards, every 250 ms in a thread of its own (contract section 8).

Read from sysfs alone: a tool that opens a card may disturb a server that starts. What can't be read is None in that
sample. ``harness.measure.power`` says what the samples mean.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.errors import EvidenceError
from harness.host.sysfs import read_int, throttle, xe_devices, xe_hwmon

PERIOD_S = 0.25
JOIN_S = 10.0
"""A read from a wedged card may never return; the end of a campaign doesn't wait for it."""
FORMAT = "b70-bench-telemetry-1"


@dataclass(frozen=True, slots=True)
class Sample:
    """One card at one moment; None is unknown."""

    t_ns: int
    """CLOCK_MONOTONIC, just before the energy was read"""
    card: str
    """PCI address"""
    energy_uj: int | None = None
    """microjoules since the driver was loaded; a counter"""
    power_cap_uw: int | None = None
    package_mc: int | None = None
    """thousandths of a degree Celsius"""
    vram_mc: int | None = None
    fan_rpm: int | None = None
    act_mhz: int | None = None
    throttled: bool | None = None
    reasons: tuple[str, ...] = ()
    """the active ones"""


@dataclass(frozen=True)
class Series:
    """All that a ``Telemetry`` saw."""

    cards: tuple[str, ...]
    samples: tuple[Sample, ...]
    """in order of time; one per card and deadline"""
    period_s: float
    missed: int
    """deadlines that passed without a sample"""
    cpu_s_per_sample: float | None
    """of the thread; null before the first sample"""
    errors: tuple[str, ...]
    """what failed beside single reads; empty when nothing did"""

    def of(self, card: str) -> list[Sample]:
        """The samples of one card."""
        return [sample for sample in self.samples if sample.card == card]


class Telemetry:
    """Samples from ``start`` to ``stop``; also a context. Cards are found by PCI address when it is made.

    ``cards`` None means every card of the xe driver. With ``file`` each sample is also written there as it is taken, so
    that a killed campaign keeps its series; see ``load_series``.
    """

    def __init__(
        self,
        sys_root: Path = Path("/sys"),
        *,
        cards: Sequence[str] | None = None,
        period_s: float = PERIOD_S,
        file: Path | None = None,
    ) -> None:
        self._sys = sys_root
        self._period_ns = round(period_s * 1e9)
        self._file = file
        self._errors: dict[str, None] = {}
        self._samples: list[Sample] = []
        self._missed = self._ticks = self._cpu_ns = 0
        self._stopping = threading.Event()
        self._tick = threading.Condition()
        self._thread: threading.Thread | None = None
        self._handle: int | None = None
        try:
            found = xe_devices(sys_root)
        except OSError as error:
            found = {}
            self._note(f"the cards can't be listed ({error.strerror})")
        self.cards = tuple(found) if cards is None else tuple(card.lower() for card in cards)
        self._probes = [_Probe(card, sys_root / "bus/pci/drivers/xe" / card) for card in self.cards]

    def __enter__(self) -> "Telemetry":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Take the first sample now and one every period after it. Once only."""
        if self._thread is not None:
            raise RuntimeError("telemetry is started once")
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()

    def stop(self) -> Series:
        """End the thread and give what it saw; also when it was never started, or stopped before."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            if self._thread.is_alive():
                self._note(f"a read of the last sample did not return within {JOIN_S:g} s")
        return self.series()

    def series(self) -> Series:
        """What was seen so far."""
        with self._tick:
            return Series(
                cards=self.cards,
                samples=tuple(self._samples),
                period_s=self._period_ns / 1e9,
                missed=self._missed,
                cpu_s_per_sample=self._cpu_ns / 1e9 / len(self._samples) if self._samples else None,
                errors=tuple(self._errors),
            )

    def wait_for(self, ticks: int, timeout_s: float) -> bool:
        """Wait until so many deadlines have been kept in all. Returns whether they were."""
        with self._tick:
            return self._tick.wait_for(lambda: self._ticks >= ticks, timeout_s)

    def _note(self, what: str) -> None:
        if len(self._errors) < 20:
            self._errors.setdefault(what)

    def _run(self) -> None:
        try:
            self._handle = self._open()
            try:
                self._loop()
            finally:
                self._close()
        except BaseException as error:  # noqa: BLE001 - a thread that dies must say so in the record
            self._note(f"the thread ended early: {type(error).__name__}: {error}")

    def _open(self) -> int | None:
        if self._file is None:
            return None
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            handle = os.open(self._file, flags, 0o644)
        except OSError as error:
            self._note(f"the samples can't be written ({error.strerror})")
            return None
        names = [field.name for field in fields(Sample)]
        head = {"format": FORMAT, "cards": self.cards, "period_s": self._period_ns / 1e9, "fields": names}
        if self._write(handle, json.dumps(head)):
            return handle
        os.close(handle)
        return None

    def _loop(self) -> None:
        deadline = time.monotonic_ns()
        while True:
            begun = time.thread_time_ns()
            taken = []
            for probe in self._probes:
                try:
                    taken.append(probe.sample())
                except Exception as error:  # noqa: BLE001 - one sample is lost, not the series
                    taken.append(Sample(time.monotonic_ns(), probe.card))
                    self._note(f"a sample failed: {type(error).__name__}: {error}")
            if self._handle is not None and taken:
                lines = [_line(one, at) for at, one in enumerate(taken)]
                if not self._write(self._handle, "\n".join(lines)):
                    self._close()  # what is there stays readable up to its last whole line
            with self._tick:
                self._samples += taken
                self._ticks += 1
                self._cpu_ns += time.thread_time_ns() - begun
                # Deadlines stand on one grid: a late sample never shifts those after it.
                behind = (time.monotonic_ns() - deadline) // self._period_ns
                self._missed += behind
                deadline += (behind + 1) * self._period_ns
                self._tick.notify_all()
            if self._stopping.wait(max(0, deadline - time.monotonic_ns()) / 1e9):
                return

    def _write(self, handle: int, text: str) -> bool:
        try:
            data = text.encode() + b"\n"
            while data:
                data = data[os.write(handle, data) :]
        except OSError as error:
            self._note(f"the samples can't be written ({error.strerror})")
            return False
        return True

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class _Probe:
    """The files of one card. They are opened anew each time, because a driver that was loaded again has new ones."""

    def __init__(self, card: str, device: Path) -> None:
        self.card = card
        self._device = device
        self._freq = device / "tile0/gt0/freq0"
        self._act = str(self._freq / "act_freq")
        self._find()

    def _find(self) -> None:
        hwmon = xe_hwmon(self._device)
        names = ("energy1_input", "power1_cap", "temp2_input", "temp3_input", "fan1_input")
        self._hwmon = None if hwmon is None else str(hwmon)
        self._files = [None if hwmon is None else str(hwmon / name) for name in names]

    def sample(self) -> Sample:
        if self._hwmon is None or not os.path.isdir(self._hwmon):  # noqa: PTH112 - it may have come back by another number
            self._find()
        moment = time.monotonic_ns()
        energy, cap, package, vram, fan = (None if path is None else read_int(path) for path in self._files)
        act = read_int(self._act)
        throttled, reasons = throttle(self._freq)
        return Sample(moment, self.card, energy, cap, package, vram, fan, act, throttled, reasons)


def load_series(lines: Iterable[str]) -> list[Sample]:
    """Samples from the text of a ``file``; a last line without its end (a kill in mid-write) is left out.

    Raises EvidenceError when it isn't such a file.
    """
    samples: list[Sample] = []
    cards: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break
        with suppress(ValueError, TypeError, KeyError, IndexError, AttributeError):
            values: Any = json.loads(line)
            if number == 1:
                known = [field.name for field in fields(Sample)]
                if values["format"] == FORMAT and values["fields"] == known:
                    cards = [str(card) for card in values["cards"]]
                    continue
            elif (sample := _sample(values, cards)) is not None:
                samples.append(sample)
                continue
        raise EvidenceError(f"telemetry line {number} is no sample; get the original file")
    return samples


def _line(one: Sample, card: int) -> str:
    values = [one.t_ns, card, one.energy_uj, one.power_cap_uw, one.package_mc, one.vram_mc, one.fan_rpm, one.act_mhz]
    return json.dumps([*values, one.throttled, one.reasons])


def _sample(values: list[Any], cards: list[str]) -> Sample | None:
    moment, card, energy, cap, package, vram, fan, act, throttled, reasons = values
    numbers = [number for number in (energy, cap, package, vram, fan, act) if number is not None]
    whole = all(type(number) is int for number in (moment, card, *numbers))
    named = isinstance(reasons, list) and all(isinstance(reason, str) for reason in reasons)
    if not whole or not named or type(throttled) not in (bool, type(None)) or not 0 <= card < len(cards):
        return None
    return Sample(moment, cards[card], energy, cap, package, vram, fan, act, throttled, tuple(reasons))
