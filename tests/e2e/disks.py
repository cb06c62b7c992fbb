"""Small file systems of their own for one test: full at its word, read-only, or without inodes."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = 4096
ROOT_ONLY = "mounts a file system of its own, which needs root"


@dataclass
class Disk:
    """A mounted file system. ``out`` is the folder for campaigns on it."""

    path: Path

    @property
    def out(self) -> Path:
        return self.path / "out"

    @property
    def _filler(self) -> Path:
        return self.path / "filler"

    def fill(self) -> None:
        """Take every free block; what other files have left of their last page stays theirs."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (1 << 20, PAGE, 1):
                try:
                    while file.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def fill_inodes(self, but: int = 0) -> None:
        """Take every free inode but some."""
        folder = self.path / "inodes"
        folder.mkdir(exist_ok=True)
        for number in range(os.statvfs(self.path).f_ffree - but):
            (folder / str(number)).touch()

    def free(self) -> None:
        """Give all of it back."""
        self._filler.unlink(missing_ok=True)
        for entry in (self.path / "inodes").glob("*"):
            entry.unlink()

    def remount(self, how: str) -> None:
        mount("-o", f"remount,{how}", str(self.path))


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


@contextmanager
def mounted(path: Path, *words: str) -> Iterator[Disk]:
    path.mkdir()
    mount(*words, str(path))
    disk = Disk(path)
    try:
        disk.out.mkdir()
        yield disk
    finally:
        # Lazily: a container that a failed test left may hold it for a moment.
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)


@contextmanager
def tmpfs(path: Path, size: str = "8m", inodes: int = 0) -> Iterator[Disk]:
    """One in memory."""
    options = f"size={size}" + (f",nr_inodes={inodes}" if inodes else "")
    with mounted(path, "-t", "tmpfs", "-o", options, "none") as disk:
        yield disk


def need_root() -> None:
    if os.geteuid() != 0:
        pytest.skip(ROOT_ONLY)


def slack(path: Path) -> int:
    """Bytes that a file's last page still takes."""
    return -path.stat().st_size % PAGE


def partial(folder: Path) -> list[str]:
    """Half-written files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*.tmp"))


class FailingDisk(Disk):
    """An ext4 on a loop device that the kernel turns read-only when an error of it is found."""

    def fail(self) -> None:
        """The kernel's own way to play such an error."""
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        (device,) = {line.split()[0] for line in mounts if line.split()[1] == str(self.path)}
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")

    def repair(self) -> None:
        """As a person does: unmounted, checked, and mounted again."""
        image = str(self.path.with_suffix(".img"))
        subprocess.run(["umount", str(self.path)], check=True)
        subprocess.run(["fsck.ext4", "-fy", image], check=False, capture_output=True)
        mount("-o", "loop", image, str(self.path))


@contextmanager
def failing_disk(path: Path) -> Iterator[FailingDisk]:
    image = path.with_suffix(".img")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    if subprocess.run(["mkfs.ext4", "-q", "-e", "remount-ro", str(image)], check=False, capture_output=True).returncode:
        pytest.skip("mkfs.ext4 can't make a file system here")
    path.mkdir()
    if subprocess.run(["mount", "-o", "loop", str(image), str(path)], check=False, capture_output=True).returncode:
        pytest.skip("no loop device here")
    try:
        yield FailingDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)
