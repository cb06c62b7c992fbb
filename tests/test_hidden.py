"""Secrets by value: whatever form a program prints them in, stars of the same length stand there."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import hidden
from harness.attempt import mask_killed
from harness.hidden import hide, hide_user_info, masked, masked_bytes
from harness.plan import ServerPlan
from harness.redact import hide_arguments, hide_environment, is_secret
from harness.wire.capture import Control, Tag, load_capture
from harness.wire.capture_writer import CaptureWriter
from harness.wire.exchange import Ending, Exchange
from harness.wire.masking import mask_capture
from tests.launch.conftest import tiny_plan

VALUE = 'zq "S3cret" pä\\ss&<w>=='


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """What one test hides would be hidden in all that follow in this process."""
    kept = dict(hidden._forms), list(hidden._forms_of_bytes)
    hidden._forms.clear()
    hidden._forms_of_bytes.clear()
    yield
    hidden._forms.clear()
    hidden._forms.update(kept[0])
    hidden._forms_of_bytes[:] = kept[1]


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps({"log": json.dumps({"env": VALUE})}),
        json.dumps({"log": json.dumps({"env": VALUE}, ensure_ascii=False)}, ensure_ascii=False),
        repr({"env": VALUE}),
        f"http://x/?key={quote(VALUE, safe='')}",
        f"http://x/?key={quote_plus(VALUE)}",
        f"Basic {base64.b64encode(f'user:{VALUE}'.encode()).decode()}",
        f"Basic {base64.b64encode(f'u:{VALUE}!!'.encode()).decode()}",
        f"{base64.urlsafe_b64encode(b'abc' + VALUE.encode()).decode()}",
    ],
)
def test_every_form_is_masked(text: str) -> None:
    hide([VALUE])
    found = masked(f"before {text} after")
    assert "***" in found and len(found) == len(f"before {text} after")
    assert "S3cret" not in found and found.startswith("before ") and found.endswith(" after")
    whole = f"before {text} after".encode()
    assert len(masked_bytes(whole)) == len(whole) and b"S3cret" not in masked_bytes(whole)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(codec="utf-8"), min_size=7, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_no_value_of_a_secret_variable_is_left(value: str, before: str, after: str) -> None:
    hide_environment({"MY_TOKEN": value})
    found = masked(f"{before}{value}{after}")
    if hidden._is_telling(value) and value not in f"{before}{after}":
        assert value not in found
    assert len(found) == len(before) + len(value) + len(after)


@pytest.mark.parametrize("value", ["", "1", "true", "short", "123456", "127.0.0.1:8000", "enabled", "disabled", "1e-5"])
def test_what_is_no_secret_is_left_alone(value: str) -> None:
    """A log in which every 1 were a star would prove nothing."""
    hide([value])
    assert masked(f"x {value} y") == f"x {value} y"


def test_names_that_are_secret() -> None:
    for name in ("MY_KEY", "ZQ_SIGN_KEY", "STRIPE_KEY", "OPENAI_API_KEY", "SOME_KEY_ID", "X-API-KEY", "A.KEY"):
        assert is_secret(name), name
    for name in ("KEY", "GPG_KEY", "PUBLIC_KEY", "CACHE_KEY", "KEYBOARD", "MONKEY", "VLLM_XPU_BONUS_TOKEN"):
        assert not is_secret(name), name


def test_user_info_and_arguments() -> None:
    hide_user_info(["postgres://bot:Passw0rd-1@db/x", "https://ghtokenABC123@host/y"])
    hide_arguments(["--api-key", "argument-key-1", "--hf-token=argument-token-2", "--model", "not-a-secret"])
    for secret in ("Passw0rd-1", "ghtokenABC123", "argument-key-1", "argument-token-2"):
        assert secret not in masked(f"x {secret} y")
    assert masked("not-a-secret") == "not-a-secret"


def test_a_plan_is_recorded_without_secrets_and_started_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/zq")
    env = {"A": "1", "MY_TOKEN": "value-of-it", "URL": "http://u:pw-of-u@h/", "DIR": "/data/people/zq/x"}
    given = tiny_plan("process", env=env, arguments=["--api-key", "k-of-it", "--x", "/data/people/zq/y"])
    plan = given.recorded()
    assert plan.env == {"A": "1", "MY_TOKEN": "<dropped>", "URL": "http://<dropped>@h/", "DIR": "<home>/x"}
    assert plan.arguments == ["--api-key", "<dropped>", "--x", "<home>/y"]
    assert plan.given is given and given.given is given
    text = plan.model_dump_json()
    assert not any(secret in text for secret in ("value-of-it", "pw-of-u", "k-of-it", "people"))
    read = ServerPlan.model_validate_json(text)
    assert read.given is read and read.recorded().model_dump() == read.model_dump() == plan.model_dump()


def test_a_plan_without_secrets_stays_the_same() -> None:
    plan = tiny_plan("process")
    assert plan.recorded() is plan


def exchange(data: bytes, sizes: list[int]) -> Exchange:
    found = Exchange(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n{}", 10**18, 10**9, Ending.CLOSED, data=data, sizes=sizes)
    found.at_ns = found.user_ns = [1000 * place for place in range(1, len(sizes) + 1)]
    found.kernel = [True] * len(sizes)
    found.connected_ns, found.sent_ns, found.end_ns = 1, 2, 10**6
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
@given(cuts=st.lists(st.integers(1, 9), min_size=1, max_size=80), drained=st.booleans())
def test_a_value_that_is_cut_by_reads(cuts: list[int], drained: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also by a read of one byte, each in a line of its own: the sizes and times stay, the value goes."""
    hide([VALUE])
    path = tmp_path_factory.mktemp("capture") / "capture.jsonl.zst"
    data = f"HTTP/1.1 500 no\r\n\r\ncafé {VALUE} and {json.dumps(VALUE)}".encode()
    sizes = []
    while sum(sizes) < len(data):
        sizes.append(min(cuts[len(sizes) % len(cuts)], len(data) - sum(sizes)))
    writer = CaptureWriter(path, {"label": "x"})
    writer.control(Control("metrics", "/metrics", 1, 200, f"a {VALUE} b", f"error {VALUE}"))
    whole = exchange(data, sizes)
    if drained:
        part = exchange(b"", [])
        writer.tags = [Tag("suite", "p1")]
        writer.begin(part, 0)
        for place in range(len(sizes)):
            for name in ("at_ns", "user_ns", "kernel", "sizes"):
                setattr(part, name, getattr(whole, name)[: place + 1])
            part.data = data[: sum(sizes[: place + 1])]
            writer.drain(part, 0)
        part.end_ns = whole.end_ns
        writer.end(part, 0)
    else:
        writer.whole(Tag("suite", "p1"), whole)
    writer.close()
    before = load_capture(path)
    assert mask_capture(path) and not mask_capture(path)
    after = load_capture(path)
    assert "S3cret" not in repr(after) and not after.truncated
    assert after.controls[0].body == f"a {'*' * len(VALUE.encode())} b"
    (_, one), (_, other) = before.exchanges[0], after.exchanges[0]
    assert len(one.data) == len(other.data) and other.data.startswith("HTTP/1.1 500 no\r\n\r\ncafé *".encode())
    for name in ("sizes", "at_ns", "user_ns", "kernel", "end_ns", "ending", "t0_wall_ns", "request"):
        assert getattr(one, name) == getattr(other, name), name


def test_a_capture_without_secrets_keeps_its_bytes(tmp_path: Path) -> None:
    hide([VALUE])
    path = tmp_path / "capture.jsonl.zst"
    writer = CaptureWriter(path, {"label": "x"})
    writer.whole(Tag("suite", "p1"), exchange(b"HTTP/1.1 200 OK\r\n\r\n{}", [21]))
    writer.close()
    kept = path.read_bytes()
    assert not mask_capture(path, ["/data/people/zq"]) and path.read_bytes() == kept


def test_the_terminal_shows_no_secret_of_the_environment(tmp_path: Path) -> None:
    """Whoever prints it: a sentence that quotes a file's name, or a table."""
    secret = "zqTerminalSecret-1"
    (tmp_path / f"{secret}.toml").write_text("{{{")
    for words in (["strict", "--launcher", f"./{secret}.toml"], ["list", secret], ["strict", "--launcher", secret]):
        done = subprocess.run(
            [Path(sys.executable).with_name("bench"), *words],
            cwd=tmp_path, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MY_PASSWORD": secret},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 64 and "*" * len(secret) in done.stderr, done
        assert secret not in done.stdout + done.stderr


def test_files_of_a_killed_attempt(tmp_path: Path) -> None:
    """What the killed run could not do is done when it is resumed; a capture that was cut short loads as before."""
    hide([VALUE])
    writer = CaptureWriter(tmp_path / "capture.jsonl.zst", {"label": "x"})
    writer.control(Control("metrics", "/metrics", 1, 200, VALUE))
    (tmp_path / "server.log").write_bytes(b"\xff " + VALUE.encode() + b"\n")
    mask_killed(tmp_path)
    assert (tmp_path / "server.log").read_bytes() == b"\xff " + b"*" * len(VALUE.encode()) + b"\n"
    assert load_capture(tmp_path / "capture.jsonl.zst").controls[0].body == "*" * len(VALUE.encode())
    (tmp_path / "capture.jsonl.zst").write_bytes(b"no capture")
    mask_killed(tmp_path)
    (tmp_path / "capture.jsonl.zst").unlink()
    (tmp_path / "server.log").unlink()
    mask_killed(tmp_path)
