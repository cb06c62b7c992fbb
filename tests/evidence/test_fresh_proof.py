"""What the fresh gate and the typed proof say of a recorded real server, with its log or its words changed."""

import pytest

from harness.evidence import store
from harness.evidence.fresh import fresh_gate, known_before_prompts, server_proof
from harness.evidence.schema import ServerRecord
from harness.launch.proof import NO_CENSUS, requested_arguments
from harness.launch.server import Within
from harness.wire.capture import Capture, load_capture
from tests.recorded import campaign

LINE = b"INFO R291 classpad census shape=%s dtype=float16 classes=3 eligible=2 canonical=64 verdict=%s map={}\n"
GOOD = LINE % (b"4096x2560", b"classpad") + LINE % (b"2560x9728", b"classpad")
FALLEN = GOOD + LINE % (b"9728x2560", b"fallback-r224-pieces")


@pytest.fixture(scope="module")
def capture() -> Capture:
    return load_capture(campaign("tiny") / "attempts" / "mtp3-a" / "capture.jsonl.zst")


@pytest.fixture
def record() -> ServerRecord:
    """As it is recorded now: with the words of its process."""
    found = ServerRecord.model_validate(store.read_json(campaign("tiny") / "attempts" / "mtp3-a" / "server.json"))
    assert found.applied is not None and found.within is None, "it is from before they were read"
    found.within = Within(source="host /proc", arguments=requested_arguments(found.requested), env=found.applied.env)
    return found


def with_classpad(record: ServerRecord) -> ServerRecord:
    return record.model_copy(update={"requested": record.requested.model_copy(update={"classpad": True})})


def told(record: ServerRecord, capture: Capture, log: bytes) -> tuple[list[str], list[str]]:
    gate = fresh_gate(record, capture, log, requests=0, tokens=None)
    return gate.failures, gate.notes


def test_the_recorded_server_contradicts_nothing(record: ServerRecord, capture: Capture) -> None:
    assert known_before_prompts(record, capture.controls, b"") == []
    proof = server_proof(record, capture, b"")
    assert proof is not None
    assert (proof.resolved.speculative_method, proof.resolved.speculative_depth) == ("mtp", 3)
    assert (proof.compilation, proof.classpad) == ("not applicable", [])
    assert "resolved configuration, unknown: model_runner" in told(record, capture, b"")[1]


def test_older_evidence_gets_no_new_words(record: ServerRecord, capture: Capture) -> None:
    record.within = None
    assert server_proof(record, capture, b"") is None
    notes = told(record, capture, b"")[1]
    assert [note for note in notes if "resolved" in note or "within" in note] == [
        "resolved configuration: read from /server_info (dev mode, loopback only)"
    ]


def test_a_whole_census_is_kept(record: ServerRecord, capture: Capture) -> None:
    asked = with_classpad(record)
    assert known_before_prompts(asked, capture.controls, GOOD * 2) == []
    proof = server_proof(asked, capture, GOOD * 2)
    assert proof is not None
    assert [(line.shape, line.verdict) for line in proof.classpad] == [
        ("4096x2560", "classpad"), ("2560x9728", "classpad")
    ] * 2  # fmt: skip
    assert "CLASSPAD census: 2 shapes (4 classpad)" in told(asked, capture, GOOD * 2)[1]


def test_a_fallback_fails_before_the_first_prompt_and_in_the_gate(record: ServerRecord, capture: Capture) -> None:
    asked = with_classpad(record)
    sentence = "shape 9728x2560 (float16) fell back: verdict=fallback-r224-pieces"
    assert known_before_prompts(asked, capture.controls, FALLEN) == [sentence]
    failures, notes = told(asked, capture, FALLEN)
    assert f"mtp3-a: {sentence}" in failures
    assert "CLASSPAD census: 3 shapes (2 classpad, 1 fallback-r224-pieces)" in notes
    assert known_before_prompts(asked, capture.controls, b"") == [NO_CENSUS]


def test_words_within_the_container(record: ServerRecord, capture: Capture) -> None:
    assert record.within is not None and record.within.env is not None
    record.within.env = record.within.env | {"PYTHONHASHSEED": "1"}
    (sentence,) = known_before_prompts(record, capture.controls, b"")
    assert sentence == "environment variable within the container PYTHONHASHSEED is requested as '0' but is '1'"
    assert f"mtp3-a: {sentence}" in told(record, capture, b"")[0]


def test_words_that_can_not_be_read_are_unknown_aloud(record: ServerRecord, capture: Capture) -> None:
    record.within = Within(source="", arguments=None, env=None, unknown="its processes can't be read")
    assert known_before_prompts(record, capture.controls, b"") == []
    assert "words of the process within: unknown (its processes can't be read)" in told(record, capture, b"")[1]
