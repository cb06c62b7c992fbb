"""Launcher and image files: the shipped ones against the contract, and what is refused in one's own."""

from pathlib import Path

import pytest

from harness.data import names
from harness.errors import UsageError
from harness.lanes import Image, Lane, image_with_feature, load_image, load_lane, parse_bytes

B70 = "qwen35-4b-w4a16"
IDS = {
    "r276": "521eb277c0733f8c2ce47aea1bb98ed576c6f1ad63bf5baf22d38fc07abf54ad",
    "r293": "40d46730c9a24f9396cc67c0e5578dd80d11dfae7a4d23a55f97620140a0b3e6",
    "r294b": "78bd728d610995d3a05a493c21a0f8a0fdc4062baa570f1c80ade02bf374baf1",
    "r304": "7cd7bb16b1fd2e679f0230a38b2f0242fe1c278853867e697c0ce139be2133d2",
}
"""Contract section 2"""


def own(folder: Path, text: str, kind: str = "lane") -> Path:
    path = folder / f"{kind}.toml"
    path.write_text(text)
    return path


def minimal(more: str = "", head: str = "") -> str:
    return f"""
schema = 1
name = "mine"
title = "Mine"
engine = "simulated"
engines = ["simulated"]
served_model_name = "m"
tensor_parallel = [1]
mtp_depths = [0]
speculative_method = "mtp"
{head}
[shapes.strict]
max_model_len = 1024
max_num_seqs = 1
max_num_batched_tokens = 1024
{more}
"""


CONTAINER = '[container]\nshm_size = "8g"\nmemory = "12g"\n'


@pytest.mark.parametrize("name", names("launchers", ".toml"))
def test_every_shipped_launcher_loads_under_its_own_name(name: str) -> None:
    lane = load_lane(name)
    assert lane.name == name
    assert lane.engine in lane.engines
    assert "strict" in lane.shapes
    for image in lane.images:
        assert load_image(image).name == image


@pytest.mark.parametrize("name", names("images", ".toml"))
def test_every_shipped_image_loads_under_its_own_name(name: str) -> None:
    image = load_image(name)
    assert image.name == name and image.entrypoint == ["vllm", "serve"]
    assert image.ids or image.references, "else it could never be found"


@pytest.mark.parametrize(("name", "digest"), IDS.items())
def test_pinned_images_of_the_contract(name: str, digest: str) -> None:
    image = load_image(name)
    assert image.ids == [f"sha256:{digest}"] and image.references == []
    assert ("classpad" in image.features) == (name in ("r293", "r294b"))


def test_container_of_the_contract() -> None:
    container = load_lane(B70).container
    assert container is not None
    assert container.devices == ["/dev/dri"]
    assert [(b.source, b.target, b.read_only) for b in container.binds] == [
        ("/dev/dri/by-path", "/dev/dri/by-path", True)
    ]
    assert container.group_of == "/dev/dri/renderD*"
    assert (container.cap_add, container.security_opt) == (["SYS_PTRACE"], ["label=disable"])
    assert (container.ulimits, container.ipc) == ({"core": 0}, "host")
    assert container.shm_size == 8 * 2**30
    assert container.memory == container.swap_total == 12 * 2**30
    limits = load_lane(B70).limits
    assert (limits.ready_s, limits.stall_s, limits.stop_s, limits.gone_s) == (1800, 300, 180, 120)


def test_shapes_of_the_contract() -> None:
    strict = load_lane(B70).shapes["strict"]
    assert (strict.max_model_len, strict.max_num_seqs, strict.max_num_batched_tokens) == (1024, 1, 1024)


@pytest.mark.parametrize(
    ("value", "expected"), [("8g", 8 * 2**30), ("512M", 512 * 2**20), ("1k", 1024), (7, 7), ("8gb", "8gb"), ("g", "g")]
)
def test_sizes(value: object, expected: object) -> None:
    assert parse_bytes(value) == expected


def test_own_file_loads(tmp_path: Path) -> None:
    lane = load_lane(str(own(tmp_path, minimal())))
    assert isinstance(lane, Lane)
    assert (lane.canaries, lane.dev_mode, lane.env_classpad, lane.card_env) == ("chat", False, None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("= 1", "launcher file lane.toml is not TOML: "),
        ("", "launcher file lane.toml: schema: field required; correct that value"),
        (minimal(head="tpyo = 1"), "launcher file lane.toml: tpyo: extra inputs are not permitted; remove or correct"),
        (minimal().replace("schema = 1", "schema = 2"), "launcher file lane.toml: schema: input should be 1"),
        (minimal().replace('"mine"', '"Mine Lane"'), "launcher file lane.toml: name: string should match pattern"),
        (minimal().replace('engine = "simulated"', 'engine = "warp"'), "launcher file lane.toml: engine: input should"),
        (minimal().replace("max_num_seqs = 1", "max_num_seqs = 0"), "lane.toml: shapes.strict.max_num_seqs: input "),
        (
            minimal(CONTAINER + 'memory_swap = "20g"\n'),
            "container.memory_swap (21474836480) must equal container.memory (12884901888), because a container that "
            "may swap makes the xe driver fault; remove memory_swap",
        ),
        (minimal(CONTAINER.replace('"12g"', '"0g"')), "container.memory: input should be greater than 0"),
        (minimal(CONTAINER.replace('"12g"', '"many"')), "container.memory: input should be a valid integer"),
        (
            minimal().replace('engine = "simulated"', 'engine = "docker"'),
            "launcher file lane.toml: the docker engine needs a [container] table; add one",
        ),
        ("x = " + "[" * 100_000, "launcher file lane.toml "),
        ("x = 1 # " + "x" * 300_000, "launcher file lane.toml is larger than 256 KiB; give a launcher file"),
    ],
)
def test_refusals_are_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_lane(str(own(tmp_path, text)))
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value).strip() and str(tmp_path) not in str(caught.value)


def test_equal_memory_and_swap_may_be_written(tmp_path: Path) -> None:
    lane = load_lane(str(own(tmp_path, minimal(CONTAINER + 'memory_swap = "12g"\n'))))
    assert lane.container is not None and lane.container.swap_total == lane.container.memory


def test_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "lane.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"^launcher file lane.toml is not UTF-8"):
        load_lane(str(path))


def test_unknown_names_list_the_known(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no launcher named 'nope'.*{B70}"):
        load_lane("nope")
    with pytest.raises(UsageError, match=r"no image named 'r999'.*r276, r293"):
        load_image("r999")


def test_image_file_refusals(tmp_path: Path) -> None:
    path = own(tmp_path, 'schema = 1\nname = "x"\n', "image")
    with pytest.raises(UsageError, match=r"^image file image.toml: title: field required"):
        load_image(str(path))


def test_image_with_a_feature() -> None:
    assert image_with_feature("classpad", ["r276", "r293", "r294b"]) == "r293"
    assert image_with_feature("classpad", ["r276", "not-there"]) is None
    assert isinstance(load_image("r293"), Image)
