"""Where suites, images and launchers are found, in what order, and what a wrong name says."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness import data
from harness.errors import ExitCode, UsageError

ROOT = Path(__file__).resolve().parents[1]


def checkout(root: Path, project: str = "b70-bench") -> Path:
    (root / "suites").mkdir(parents=True)
    (root / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
    return root


def test_a_checkout_in_the_current_directory_wins_over_the_installed_one(tmp_path, monkeypatch):
    own = checkout(tmp_path) / "suites" / "strict-v1.json"
    own.write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert data.find("suites", "strict-v1", ".json") == own


def test_another_project_in_the_current_directory_is_not_asked(tmp_path, monkeypatch):
    (checkout(tmp_path, "other") / "suites" / "strict-v1.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert data.find("suites", "strict-v1", ".json") == ROOT / "suites" / "strict-v1.json"


@pytest.mark.parametrize("content", [b"", b"project = 3", b"[project", b"\xff\xfe", b"[project]\nname = 4"])
def test_a_strange_pyproject_is_no_checkout(tmp_path, monkeypatch, content):
    (checkout(tmp_path) / "suites" / "mine.json").write_text("{}")
    (tmp_path / "pyproject.toml").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    assert "mine" not in data.names("suites", ".json")


def test_a_path_is_taken_as_is(tmp_path, monkeypatch):
    file = tmp_path / "strict-v1.json"
    file.write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert data.find("suites", str(file), ".json") == file
    assert data.find("suites", "./strict-v1.json", ".json").resolve() == file
    assert data.find("suites", "strict-v1.json", ".json").resolve() == file


def test_a_name_may_carry_its_suffix(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert data.find("suites", "strict-v1.json", ".json") == data.find("suites", "strict-v1", ".json")


def test_shipped_files_are_found_without_any_checkout(tmp_path):
    package = tmp_path / "site" / "harness"
    shutil.copytree(ROOT / "harness", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "suites", package / "_data" / "suites")
    code = (
        "from harness.data import find, names\n"
        "print(find('suites', 'strict-v1', '.json'))\n"
        "print(names('suites', '.json'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "site",
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    found, names = done.stdout.splitlines()
    assert Path(found) == package / "_data" / "suites" / "strict-v1.json"
    assert "strict-v1" in names


def test_names_are_sorted_and_each_stands_once(tmp_path, monkeypatch):
    folder = checkout(tmp_path) / "suites"
    for name in ("zeta.json", "strict-v1.json", "alpha.json", "notes.txt"):
        (folder / name).write_text("{}")
    (folder / "folder.json").mkdir()
    monkeypatch.chdir(tmp_path)
    names = data.names("suites", ".json")
    assert names == sorted(set(names))
    assert {"alpha", "zeta", "strict-v1"} <= set(names)
    assert not {"notes", "folder"} & set(names)


@pytest.mark.parametrize(
    "name", ["", "no-such", "no-such.json", "a/b", "/no/such.json", "x" * 5000, "nul\0", "/nul\0", ".."]
)
def test_an_unknown_name_is_one_sentence_naming_the_known(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        data.find("suites", name, ".json")
    message = str(caught.value)
    assert "strict-v1" in message
    assert message.endswith(".") and "\n" not in message and len(message) < 600
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_directory_is_not_a_file(tmp_path):
    with pytest.raises(UsageError, match="is not a file"):
        data.find("suites", str(tmp_path), ".json")


def test_it_imports_nothing_heavy():
    heavy = ("pydantic", "numpy", "scipy", "docker", "httpx", "rich")
    code = f"import sys, harness.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
