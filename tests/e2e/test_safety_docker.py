"""Containers have no more than they were given, and no secret, path of a person or script of a stranger gets out.

One campaign on real containers whose server tells everything it knows, in every way it has, asked for by a user whose
home, launcher, site file, environment and command line are full of secrets. Then every command that shows or exports.
"""

import base64
import html
import io
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import zstandard

from harness.launch.docker import list_ours, remove_ours
from tests import recorded
from tests.e2e.bench import BENCH
from tests.e2e.conftest import QuickLane
from tests.launch.conftest import build_image

pytestmark = pytest.mark.docker

IMAGE = f"b70-bench-e2e-test:leaky-{os.getpid()}"
LEAKY = Path(__file__).with_name("leaky_server.py")
SCRIPT = "<script>alert(1)</script>"
PERSON = "zq-person"
SECONDS = 240.0

HOST_ENV = {
    "HF_TOKEN": "hf_zqHostTokenA1b2C3",
    "AWS_SECRET_ACCESS_KEY": "zqAws/Secret+Key9==",
    "OPENAI_API_KEY": "sk-zq-openai-0123456789",
    "MY_PASSWORD": 'zq "quoted" pässwörd\\&<x>',
    "ZQ_SIGN_KEY": "zqSomeKindOfKey77",
    "PROXY_OF_MINE": "http://zquser:zqHostProxyPw@proxy.invalid:3128",
    "GH_PAT": "ghp_zqPatValue55aa",
}
LANE_ENV = {
    "LANE_TOKEN": "zqLaneToken-1357",
    "LANE_MIRROR": "https://zqbot:zqLaneUrlPw@mirror.invalid/x",
    # A secret of the host under a name that says nothing.
    "COPIED_FROM_HOST": HOST_ENV["HF_TOKEN"],
    "ALSO_COPIED": f"key={HOST_ENV['MY_PASSWORD']};",
}
SITE_ENV = {"SITE_PASSWORD": "zqSitePassword!42", "SITE_URL": "ftp://zqSiteUserOnly@files.invalid/"}
IMAGE_ENV = {"IMAGE_API_KEY": "zqImageKey-abcdef", "BASIC_AUTH": "zqImageUser:zqImagePw"}
ARGUMENT = "zqArgumentKey-2468"
LABEL = "zqLabelToken-8642"
API_KEY = "zqBearerValue-97531"

SECRETS = [
    *(value for name, value in HOST_ENV.items() if name != "PROXY_OF_MINE"),
    *(LANE_ENV["LANE_TOKEN"], SITE_ENV["SITE_PASSWORD"], *IMAGE_ENV.values()),
    *("zqHostProxyPw", "zqLaneUrlPw", "zqSiteUserOnly", ARGUMENT, LABEL, API_KEY),
]


def forms(value: str) -> set[bytes]:
    """How a text may stand in a file."""
    raw = value.encode()
    found = {value, json.dumps(value)[1:-1], json.dumps(json.dumps(value)[1:-1])[1:-1], repr(value)[1:-1]}
    found |= {quote(value), quote(value, safe=""), quote_plus(value), html.escape(value)}
    for before in range(3):
        whole = base64.b64encode(b"x" * before + raw)
        found.add(whole[(8 * before + 5) // 6 : 8 * (before + len(raw)) // 6].decode())
    return {form.encode() for form in found}


def contents(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".zst":
        return data + zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    return data


def leaks(where: dict[str, bytes], what: list[str]) -> list[str]:
    return [
        f"{value!r} in {name} as {form!r}" for name, data in where.items() for value in what for form in forms(value)
        if form in data
    ]  # fmt: skip


def joined(path: Path) -> bytes:
    """The bytes that servers sent, put together again: a value may lie across two reads."""
    parts = b""
    for line in contents(path).split(b"\n"):
        with suppress(ValueError):
            record = json.loads(line)
            parts += record.get("text", "").encode() + base64.b64decode(record.get("base64", ""))
    return parts


@dataclass
class Planted:
    """A finished campaign, and what its container looked like."""

    home: Path
    campaign: Path
    said: dict[str, bytes] = field(default_factory=dict)
    """what the terminal got, by command"""
    inspect: dict[str, Any] = field(default_factory=dict)
    within: dict[str, tuple[int, str]] = field(default_factory=dict)
    reached: dict[str, str] = field(default_factory=dict)
    """what became of connections to the port, by address of this host"""
    kept: list[str] = field(default_factory=list)

    def files(self) -> dict[str, bytes]:
        """Every file of the campaign and of what was made of it."""
        roots = (self.campaign, self.home / "work" / "made")
        found = {str(path): contents(path) for root in roots for path in root.rglob("*") if path.is_file()}
        return found | {f"{name} joined": joined(Path(name)) for name in found if name.endswith(".zst")}


PROBES = {
    "write to the model": "echo x > /model/planted",
    "remove from the model": "rm /model/config.json",
    "remount the model": "mount -o remount,rw /model",
    "write to the cache": "echo x > /cache/planted && rm /cache/planted",
    "docker's socket": "test ! -e /var/run/docker.sock -a ! -e /run/docker.sock",
    "the host's disks": "test -z \"$(ls /dev | grep -E '^(sd|vd|nvme|dm-)')\"",
    "set the host's clock": "date -s @0",
    "load a module": "test -w /sys/module",
    "other processes": "test $(ls -d /proc/[0-9]* | wc -l) -lt 12",
}


def addresses() -> list[str]:
    """Addresses of this host but loopback: of its routes and of Docker's bridge."""
    words = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"inet (\d+\.\d+\.\d+\.\d+)", words)
    return [address for address in found if not address.startswith("127.")]


def look(client: Any, container_id: str, planted: Planted) -> None:
    planted.inspect = client.api.inspect_container(container_id)
    container = client.containers.get(container_id)
    for name, command in PROBES.items():
        code, output = container.exec_run(["sh", "-c", command])
        planted.within[name] = (code, output.decode())
    (published,) = planted.inspect["NetworkSettings"]["Ports"]["8000/tcp"]
    for address in ["127.0.0.1", "127.0.0.2", *addresses()]:
        try:
            with socket.create_connection((address, int(published["HostPort"])), timeout=3):
                planted.reached[address] = "connected"
        except OSError as error:
            planted.reached[address] = type(error).__name__


def write_lane(home: Path) -> list[str]:
    lane = QuickLane(home / "lane", IMAGE, prompts=5, name="leaky")
    options = lane("--api-key", ARGUMENT, step_us=4000)
    launcher, image, suite = (Path(word) for word in options[1::2])
    text = image.read_text().replace('"-m", "harness.simulated"', '"/app/leaky_server.py"')
    image.write_text(text.replace("bench.test", "bench.leaky"))
    text = launcher.read_text().replace('served_model_name = "sim"', f'served_model_name = "sim {SCRIPT}"')
    text = text.replace("directory_needed = false", "directory_needed = true").replace(
        'title = "Simulated server in a container"', f'title = "{SCRIPT}"'
    )
    env = {**LANE_ENV, "LANE_HOME": f"{home}/lane/x", "HTML": SCRIPT}
    text = text.replace("[model]", "[env]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in env.items()) + "[model]")
    launcher.write_text(text)
    whole = json.loads(suite.read_text())
    whole["suite_id"], whole["prompts"][0]["id"] = f"suite {SCRIPT}", f"id {SCRIPT}"
    whole["prompts"][0]["prompt"] += SCRIPT
    suite.write_text(json.dumps(whole))
    (home / "site.toml").write_text("[env]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in SITE_ENV.items()))
    model = home / "models" / "weights"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    given = [f"../{Path(word).relative_to(home)}" if word.startswith("/") else word for word in options]
    return [*given, "--site", str(home / "site.toml"), "--model-dir", f"{home}/models/weights", "--mtp", "0"]


def run(planted: Planted, env: dict[str, str], *words: str) -> int:
    done = subprocess.run(
        [BENCH, *words], cwd=planted.home / "work", env=env, capture_output=True, timeout=SECONDS, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    planted.said[" ".join(words[:1])] = planted.said.get(words[0], b"") + done.stdout + done.stderr
    return done.returncode


def build(client: Any, base: str) -> None:
    env = "".join(f"ENV {name}={json.dumps(value)}\n" for name, value in IMAGE_ENV.items())
    dockerfile = (
        f"FROM {base}\nCOPY leaky_server.py /app/leaky_server.py\n{env}"
        f'LABEL bench.leaky=simulated some.token={LABEL} html="{SCRIPT}"\n'
        'ENTRYPOINT ["python3", "/app/leaky_server.py"]\n'
    )
    build_image(client, IMAGE, dockerfile, {LEAKY.name: LEAKY})


@pytest.fixture(scope="module")
def planted(docker_client: Any, simulated_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    build(docker_client, simulated_image)
    home = tmp_path_factory.mktemp(PERSON) / PERSON
    out = home / "work" / "out"
    out.mkdir(parents=True)
    found = Planted(home, Path())
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "USER": PERSON, "LOGNAME": PERSON, "LANG": "C.UTF-8"}
    env |= HOST_ENV | {"ZQ_BEARER": API_KEY}
    words = ["strict", *write_lane(home), "--out", "out", "--api-key-env", "ZQ_BEARER"]
    process = subprocess.Popen(
        [BENCH, *words], cwd=home / "work", env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not found.inspect and process.poll() is None and time.monotonic() < deadline:
            names = {entry.name for entry in out.iterdir()}
            ours = [item for item in list_ours(docker_client) if item.campaign in names and item.running]
            if ours and (out / ours[0].campaign / "attempts/mtp0-a/capture.jsonl.zst").exists():
                look(docker_client, ours[0].id, found)
            time.sleep(0.2)
        said, _ = process.communicate(timeout=SECONDS)
        found.said["strict"] = said
        (found.campaign,) = out.iterdir()
        commands(found, env)
        yield found
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        names = {entry.name for entry in out.iterdir()}
        for item in list_ours(docker_client):
            if item.campaign in names:
                remove_ours(docker_client, item.id, stop_s=5, gone_s=30)
        docker_client.images.remove(IMAGE, force=True)


def commands(found: Planted, env: dict[str, str]) -> None:
    """Everything that shows or exports what was recorded."""
    (found.home / "work" / "made").mkdir()
    campaign, other = f"out/{found.campaign.name}", str(recorded.campaign("tiny"))
    for words in (
        ["verify", campaign],
        ["verify", campaign, "--json"],
        ["show", campaign],
        ["show", campaign, "--svg", "made/show.svg"],
        ["report", campaign, "-o", "made/page.html"],
        ["export", campaign, "-o", "made/export"],
        ["promote", campaign, "--new", "made/family.json"],
        ["promote", campaign, "--new", "made/family2.json", "--json"],
        ["compare", campaign, other, "--anyway"],
        ["compare", other, campaign, "--anyway", "--json"],
        ["explain", campaign],
        ["explain", campaign, "-o", "made/explain.json", "--json"],
        ["list", "out"],
        ["list", "out", "--json"],
        ["seal", "--new-key", "me.key"],
        ["seal", campaign, "--key", "me.key"],
    ):
        found.kept.append(f"{' '.join(words)}: {run(found, env, *words)}")


def test_the_campaign_ended_and_every_command_ran(planted: Planted) -> None:
    said = planted.said["strict"].decode()
    evidence = json.loads((planted.campaign / "evidence.json").read_text())
    assert [attempt["status"] for attempt in evidence["attempts"]] == ["complete", "complete"], said
    assert evidence["status"] in ("passed", "withheld"), said
    failed = {gate["name"] for attempt in evidence["attempts"] for gate in attempt["gates"] if not gate["passed"]}
    assert failed <= {"client"}, said
    codes = dict(line.rsplit(": ", 1) for line in planted.kept)
    whole = "0" if evidence["status"] == "passed" else "1"
    for command, code in codes.items():
        refuses = command.startswith(("promote", "export", "show"))
        assert code in ((whole, "0") if refuses else ("0",)), (command, code, planted.said)
    assert (planted.home / "work/made/page.html").stat().st_size > 10_000


def test_the_secrets_were_there_to_leak(planted: Planted) -> None:
    """Else the tests below would pass on a server that says nothing."""
    env = dict(line.partition("=")[::2] for line in planted.inspect["Config"]["Env"])
    assert env["LANE_TOKEN"] == LANE_ENV["LANE_TOKEN"] and env["SITE_PASSWORD"] == SITE_ENV["SITE_PASSWORD"]
    assert env["IMAGE_API_KEY"] == IMAGE_ENV["IMAGE_API_KEY"] and env["LANE_HOME"].startswith(str(planted.home))
    assert ARGUMENT in planted.inspect["Args"]
    log = (planted.campaign / "attempts/mtp0-a/server.log").read_bytes()
    assert b"LANE_TOKEN=" + b"*" * len(LANE_ENV["LANE_TOKEN"]) in log
    capture = joined(planted.campaign / "attempts/mtp0-a/capture.jsonl.zst")
    assert b": SITE_PASSWORD=" + b"*" * len(SITE_ENV["SITE_PASSWORD"]) in capture


def test_no_secret_in_any_file(planted: Planted) -> None:
    found = leaks(planted.files(), SECRETS)
    assert not found, (len(found), found[:20])


def test_no_secret_on_the_terminal(planted: Planted) -> None:
    assert leaks(planted.said, SECRETS) == []


def test_no_path_of_a_person_in_any_file(planted: Planted) -> None:
    found = leaks(planted.files(), [str(planted.home), PERSON])
    assert not found, (len(found), found[:20])


def test_no_path_of_a_person_on_the_terminal(planted: Planted) -> None:
    found = leaks(planted.said, [str(planted.home), PERSON])
    assert not found, (len(found), found[:20])


def test_the_host_is_named_in_one_place(planted: Planted) -> None:
    """Contract section 8 wants it there: else a comparison across hosts would be taken for a reproduction."""
    name = socket.gethostname()
    if len(name) < 6:
        pytest.skip("this host's name is too short to be looked for")
    evidence = json.loads((planted.campaign / "evidence.json").read_text())
    assert evidence["start"]["host"]["facts"].pop("hostname")["value"] == name
    assert name not in json.dumps(evidence)
    assert leaks({str(path): contents(path) for path in planted.campaign.rglob("attempts/*/*")}, [name]) == []


def test_container_has_no_more_than_it_was_given(planted: Planted) -> None:
    host, config = planted.inspect["HostConfig"], planted.inspect["Config"]
    assert host["Privileged"] is False
    assert host["NetworkMode"] == "bridge"
    assert (host["PidMode"], host["UTSMode"], host["UsernsMode"]) == ("", "", "")
    assert host["IpcMode"] == "private"
    assert not host["CapAdd"] and not host["Devices"] and not host["GroupAdd"] and not host["DeviceRequests"]
    assert not any("unconfined" in option for option in host["SecurityOpt"] or [])
    assert host["RestartPolicy"]["Name"] in ("", "no") and host["RestartPolicy"]["MaximumRetryCount"] == 0
    assert host["Memory"] == host["MemorySwap"] == 256 << 20
    assert not host["VolumesFrom"] and not host["Links"] and not host["ExtraHosts"]
    mounts = {mount["Destination"]: (mount["Type"], mount["RW"]) for mount in planted.inspect["Mounts"]}
    assert mounts == {"/model": ("bind", False), "/cache": ("bind", True)}
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert host["PortBindings"] == {
        "8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": host["PortBindings"]["8000/tcp"][0]["HostPort"]}]
    }
    assert "HTTP_PROXY" not in " ".join(config["Env"])


def test_what_a_process_within_can_do(planted: Planted) -> None:
    refused = ("write to the model", "remove from the model", "remount the model", "set the host's clock")
    for name in refused:
        assert planted.within[name][0] != 0, planted.within
    for name in planted.within.keys() - {*refused, "load a module"}:
        assert planted.within[name][0] == 0, (name, planted.within)
    assert planted.within["load a module"][0] != 0
    assert "Read-only file system" in planted.within["write to the model"][1]
    assert sorted(path.name for path in (planted.home / "models/weights").iterdir()) == ["config.json"]


def test_the_port_answers_on_loopback_only(planted: Planted) -> None:
    assert planted.reached.pop("127.0.0.1") == "connected"
    assert len(planted.reached) >= 2, "this host has no other address"
    assert set(planted.reached.values()) == {"ConnectionRefusedError"}, planted.reached


def test_script_of_a_real_campaign_stays_text(planted: Planted) -> None:
    page = (planted.home / "work/made/page.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page and "alert(1)</script" not in page
    assert "<script" not in (planted.home / "work/made/show.svg").read_text()
