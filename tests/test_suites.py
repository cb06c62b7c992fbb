"""Suite files: our own strict suite, the lab's, and every way in which a file can be wrong."""

import hashlib
import json
import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import suites
from harness.errors import ExitCode, UsageError
from harness.suites import load_suite

ROOT = Path(__file__).resolve().parents[1]
LAB = ROOT.parent / "shared" / "lab"
CLASSES = {"operations": 3, "analysis": 3, "code": 2, "prose": 2, "documentation": 1, "structured-writing": 1}


def lab(name: str) -> Path:
    path = LAB / name
    if not path.is_file():
        pytest.skip(f"the lab's {name} is not here")
    return path


def good() -> dict:
    prompts = [{"id": f"p{n}", "class": "code", "prompt": f"Write program number {n}."} for n in range(3)]
    return {"suite_id": "try", "version": 1, "prompts": prompts}


def refusal(path: Path, **options) -> str:
    with pytest.raises(UsageError) as caught:
        load_suite(str(path), **options)
    message = str(caught.value)
    assert caught.value.exit_code == ExitCode.USAGE
    assert message.endswith(".") and "\n" not in message and len(message) < 700
    return message


def written(tmp_path: Path, document: object) -> Path:
    path = tmp_path / "suite.json"
    path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
    return path


def test_our_strict_suite_has_the_contracts_classes_in_mixed_order():
    suite = load_suite("strict-v1")
    order = [prompt.prompt_class for prompt in suite.prompts]
    assert Counter(order) == CLASSES
    assert all(one != other for one, other in pairwise(order))
    assert (suite.suite_id, suite.version, suite.name) == ("b70-bench-strict-v1", 1, "strict-v1")


def test_our_prompts_have_48_to_80_english_words():
    for prompt in load_suite("strict-v1").prompts:
        assert 48 <= len(prompt.text.split()) <= 80, prompt.id


def test_no_two_of_our_prompts_share_an_opening_of_more_than_three_words():
    openings = [tuple(prompt.text.lower().split()[:4]) for prompt in load_suite("strict-v1").prompts]
    assert len(set(openings)) == len(openings) == 12


def test_none_of_our_sentences_is_the_labs():
    theirs = load_suite(str(lab("realistic-suite-v1.json")))
    ours = load_suite("strict-v1")

    def runs(suite, length=6):
        words = [prompt.text.lower().split() for prompt in suite.prompts]
        return {tuple(one[n : n + length]) for one in words for n in range(len(one) - length + 1)}

    assert not runs(ours) & runs(theirs)
    assert not {prompt.id for prompt in ours.prompts} & {prompt.id for prompt in theirs.prompts}


def test_hashes_are_of_the_bytes():
    path = ROOT / "suites" / "strict-v1.json"
    suite = load_suite(str(path))
    assert suite.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    for prompt in suite.prompts:
        assert prompt.sha256 == hashlib.sha256(prompt.text.encode()).hexdigest()


def test_the_labs_strict_suite_loads_with_its_classes():
    suite = load_suite(str(lab("realistic-suite-v1.json")))
    # The whole hash as the lab's own campaign records have it.
    assert suite.sha256 == "df03f49d36c36d2b8ac4cd117b7cb2e42c74878af1f6926690ebb89eeccd47ac"
    assert Counter(prompt.prompt_class for prompt in suite.prompts) == CLASSES
    by_id = {prompt.id: prompt.prompt_class for prompt in suite.prompts}
    assert by_id["risk-register"] == "structured-writing"
    assert by_id["bug-report-synthesis"] == "operations"


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [("smallctx-suite.json", "cache", 8), ("2026-09-09-qwen35-4b-fragile-suite-c64.json", "cache-c056", None)],
)
def test_the_labs_ladder_suites_load_without_classes_only(name, first, count):
    path = lab(name)
    suite = load_suite(str(path), need_classes=False)
    assert suite.prompts[0].id == first
    assert count is None or len(suite.prompts) == count
    assert repr(first) in refusal(path)


def test_the_class_field_wins_over_the_labs_table(tmp_path):
    document = good()
    document["prompts"][0] = {"id": "code-review", "class": "prose", "prompt": "Review."}
    document["prompts"][1] = {"id": "code-review-2", "prompt": "Review again."}
    path = written(tmp_path, document)
    assert "'code-review-2'" in refusal(path)
    loaded = load_suite(str(path), need_classes=False)
    assert [prompt.prompt_class for prompt in loaded.prompts] == ["prose", "", "code"]


def broken(**changes) -> dict:
    document = good()
    for key, value in changes.items():
        if key in document:
            document[key] = value
        else:
            document["prompts"][1][{"klass": "class"}.get(key, key)] = value
    return document


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"suite_id": "\xff"}', "not UTF-8"),
        (b'{"suite_id": "x", "version": NaN, "prompts": []}', "NaN"),
        (b'{"suite_id": "x", "version": -Infinity, "prompts": []}', "Infinity"),
        (b'{"suite_id": "x", "suite_id": "y", "version": 1, "prompts": []}', "stands twice"),
        (b"[" * 200_000, "not strict JSON"),
        (b'{"version": ' + b"1" * 5000 + b"}", "not strict JSON"),
        (b" " * (suites.MAX_BYTES + 1), "larger than"),
        ([], "the document is wrong"),
        (None, "the document is wrong"),
        ({"suite_id": "x", "version": 1}, "'prompts'"),
        (broken(version="1"), "'version'"),
        (broken(version=True), "'version'"),
        (broken(version=1.0), "'version'"),
        (broken(version=-1), "'version'"),
        (broken(suite_id=""), "'suite_id'"),
        (broken(suite_id=7), "'suite_id'"),
        (broken(suite_id="a\r\nb"), "control character"),
        (broken(prompts=[]), "'prompts'"),
        (broken(prompts={}), "'prompts'"),
        (broken(prompts=["text"]), "'prompts.0'"),
        (broken(id=3), "'prompts.1.id'"),
        (broken(id=""), "'prompts.1.id'"),
        (broken(id="x" * 101), "'prompts.1.id'"),
        (broken(id="a\nb"), "control character"),
        (broken(id="p0"), "'p0' stands more than once"),
        (broken(prompt=None), "'prompts.1.prompt'"),
        (broken(prompt=" \n"), "'p1' is empty"),
        (broken(prompt="\ud800"), "half of a surrogate pair"),
        (broken(prompt="Write program number 2."), "'p1' and 'p2' have the same text"),
        (broken(klass=5), "'prompts.1.class'"),
        (broken(klass=""), "'prompts.1.class'"),
        (broken(klass=" "), "'p1' has no class"),
        (broken(klass=None), "'p1' has no class"),
        (broken(surprise=1), "'prompts.1.surprise'"),
        ({**good(), "surprise": 1}, "'surprise'"),
    ],
)
def test_a_bad_file_gives_one_sentence(tmp_path, document, says):
    message = refusal(written(tmp_path, document))
    assert says in message
    assert "suite.json" in message


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.json")
    assert "is not a file" in refusal(tmp_path)
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    assert "is not a file" in refusal(pipe)


def test_a_file_without_permission_is_refused(tmp_path):
    path = written(tmp_path, good())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    assert "can't be read" in refusal(path)


def test_a_file_of_exactly_the_limit_loads(tmp_path):
    raw = json.dumps(good()).encode()
    path = written(tmp_path, raw + b" " * (suites.MAX_BYTES - len(raw)))
    assert len(load_suite(str(path)).prompts) == 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
near_suites = st.fixed_dictionaries(
    {
        "suite_id": st.text(max_size=5) | json_values,
        "version": st.integers() | json_values,
        "prompts": st.lists(
            st.fixed_dictionaries(
                {"id": st.text(max_size=3) | json_values, "prompt": st.text() | json_values},
                optional={"class": json_values},
            )
        ),
    }
)


@given(document=json_values | near_suites)
def test_any_json_loads_or_is_refused_in_one_sentence(tmp_path_factory, document):
    path = written(tmp_path_factory.getbasetemp(), document)
    try:
        suite = load_suite(str(path), need_classes=False)
    except UsageError as error:
        assert "\n" not in str(error) and str(error).endswith(".")
    else:
        assert len(suite.prompts) == len(document["prompts"]) == len({prompt.sha256 for prompt in suite.prompts})
