"""Paths become roles, secrets go by name, and numeric knobs stay."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.redact import DROPPED, Redactor, dropped_names, is_secret

ROLES = {
    "/data/camp": "<campaign>",
    "/data/camp/attempts/mtp0-a/cache": "<cache>",
    "/opt/models/qwen": "<model>",
    "/home/ann": "<home>",
}
REDACTOR = Redactor(ROLES)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "hf_token", "SECRET", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
        *("VLLM_API_KEY", "OPENAI_APIKEY", "DB_PASSWORD", "SMTP_PASSWD", "MY_PASS", "GIT_AUTH", "SSH_AUTH_SOCK"),
        *("SESSION_COOKIE", "PRIVATE_THING", "GCP_CREDENTIAL", "GOOGLE_APPLICATION_CREDENTIALS", "X.TOKEN", "TOKEN-X"),
    ],
)
def test_secrets_go_by_name(name: str) -> None:
    assert is_secret(name)
    assert REDACTOR.environment({name: "hunter2", "A": "1"}) == {"A": "1"}
    assert dropped_names({name: "hunter2", "A": "1"}) == [name]


@pytest.mark.parametrize(
    "name",
    [
        *("PYTORCH_ALLOC_CONF", "VLLM_XPU_MAX_BATCHED_TOKENS", "MAX_TOKENS", "TOKENIZERS_PARALLELISM", "PWD", "PATH"),
        *("VLLM_XPU_MTP_SUPPRESS_BONUS_TOKEN", "PYTHONHASHSEED", "GPG_KEY", "AUTHOR", "TORCHINDUCTOR_X_PASS", "KEY"),
        *("CCL_SEND", "HF_HUB_OFFLINE", "ZE_AFFINITY_MASK", "XDG_CACHE_HOME"),
    ],
)
def test_knobs_stay(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("/opt/models/qwen", "<model>"),
        ("/opt/models/qwen/", "<model>/"),
        ("/opt/models/qwen/config.json", "<model>/config.json"),
        ("/opt/models/qwen2", "/opt/models/qwen2"),
        ("/opt/models/qwen-old/x", "/opt/models/qwen-old/x"),
        ("/opt/models/qwen.bak", "/opt/models/qwen.bak"),
        ("no /opt/models/qwen.", "no <model>."),
        ("/data/camp/attempts/mtp0-a/cache/vllm", "<cache>/vllm"),
        ("/data/camp/x", "<campaign>/x"),
        ("/home/ann/venv/bin:/usr/bin", "<home>/venv/bin:/usr/bin"),
        ("/home/anna/venv/bin:/usr/bin", "<path>:/usr/bin"),
        ("/usr/bin:/root/bin:/mnt/x", "/usr/bin:<path>:<path>"),
        ("--dir=/Users/bob/x --y", "--dir=<path> --y"),
        ("-L/home/bob/lib", "-L<path>"),
        ("file:///home/bob/x.json", "file://<path>"),
        ('{"path":"/mnt/disk/x","n":1}', '{"path":"<path>","n":1}'),
        ("/opt/home/x", "/opt/home/x"),
        ("/opt/models/qwen/home/x", "<model>/home/x"),
        ("run >/home/bob/x", "run ><path>"),
        ("/rooted /homes", "/rooted /homes"),
        ("http://ann:pw@proxy:3128", f"http://{DROPPED}@proxy:3128"),
        ("/dev/dri", "/dev/dri"),
    ],
)
def test_paths_become_roles(text: str, redacted: str) -> None:
    assert REDACTOR.text(text) == redacted


def test_a_root_or_relative_path_is_no_role() -> None:
    assert Redactor({"/": "<home>", "": "<model>", "x": "<cache>"}).text("/usr/x") == "/usr/x"


@pytest.mark.parametrize(
    ("arguments", "redacted"),
    [
        (["--api-key", "hunter2", "--x"], ["--api-key", DROPPED, "--x"]),
        (["--api-key=hunter2"], [f"--api-key={DROPPED}"]),
        (["--hf-token", "hunter2"], ["--hf-token", DROPPED]),
        (["--hf-token", "--x", "1"], ["--hf-token", "--x", "1"]),
        (["--return-tokens-as-token-ids", "x"], ["--return-tokens-as-token-ids", "x"]),
        (["--max-num-batched-tokens", "1024"], ["--max-num-batched-tokens", "1024"]),
        (["--chat-template", "/home/bob/t"], ["--chat-template", "<path>"]),
    ],
)
def test_secret_arguments(arguments: list[str], redacted: list[str]) -> None:
    assert REDACTOR.arguments(arguments) == redacted


def test_an_inspect_is_redacted_everywhere() -> None:
    inspect = {
        "Args": ["serve", "--model", "/model", "--api-key", "hunter2"],
        "Config": {"Env": ["HF_TOKEN=hunter2", "A=/home/bob/x", "B=1"], "Labels": {"x.token": "hunter2", "y": "1"}},
        "HostConfig": {
            "Binds": ["/opt/models/qwen:/model:ro", "/bench/results/c:/root/.cache/vllm"],
            "Devices": [{"PathOnHost": "/dev/dri", "PathInContainer": "/dev/dri"}],
            "Memory": 1,
            "Privileged": False,
            "CapAdd": None,
        },
        "Mounts": [{"Source": "/bench/results/c", "Destination": "/x", "RW": True}],
    }
    assert REDACTOR.tree(inspect) == {
        "Args": ["serve", "--model", "/model", "--api-key", DROPPED],
        "Config": {"Env": ["A=<path>", "B=1"], "Labels": {"y": "1"}},
        "HostConfig": {
            "Binds": ["<model>:/model:ro", "<path>:/root/.cache/vllm"],
            "Devices": [{"PathOnHost": "/dev/dri", "PathInContainer": "/dev/dri"}],
            "Memory": 1,
            "Privileged": False,
            "CapAdd": None,
        },
        "Mounts": [{"Source": "<path>", "Destination": "/x", "RW": True}],
    }


SECRET = "s3cr3t-person"
folders = st.sampled_from(["/home", "/root", "/Users", "/mnt", "/opt/models/qwen/..", "/data/camp"])
leaves = st.sampled_from([1, None, True, "plain", "", f"/home/{SECRET}/x", f"a=/root/{SECRET}", f"/mnt/{SECRET}:/x:ro"])
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["Env", "Binds", "Source", "A", f"/home/{SECRET}", "Token"]), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(trees)
def test_no_person_is_left_in_any_tree(tree: object) -> None:
    redacted = REDACTOR.tree(tree)
    assert SECRET not in json.dumps(redacted)
    assert REDACTOR.tree(redacted) == redacted


@given(st.dictionaries(st.text("ABTOKENS_", min_size=1, max_size=9), st.text(max_size=9), max_size=6))
def test_every_variable_is_kept_or_named(env: dict[str, str]) -> None:
    assert sorted([*REDACTOR.environment(env), *dropped_names(env)]) == sorted(env)
