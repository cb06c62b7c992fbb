"""Editing JSON in place: equal parts keep their bytes, the result is the value asked for, bad files are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.publish.family_text import MAX_BYTES, decimals, edited, read, same, walk

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats(-1e9, 1e9) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
STYLES = st.sampled_from(
    [
        {"indent": 1},
        {"indent": 2, "ensure_ascii": False},
        {"indent": "\t"},
        {},
        {"separators": (",", ":"), "ensure_ascii": False},
        {"separators": (" , ", " : ")},
    ]
)


def encodable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(old=VALUES, new=VALUES, style=STYLES)
def test_the_edited_text_is_the_new_value_whatever_stood_there(old: Any, new: Any, style: dict[str, Any]) -> None:
    text = json.dumps({"a": old, "z": [old]}, **style)
    if not encodable([old, new]):
        return
    text, root = read(text.encode(), "f.json")
    for value in ({"a": new, "z": [old]}, {"a": old, "z": [old, new]}, {"a": old, "z": [old], "new": new}):
        assert same(json.loads(edited(text, root, value)), value)
    assert edited(text, root, {"a": old, "z": [old]}) == text


@given(old=VALUES, new=VALUES, style=STYLES, around=VALUES)
def test_only_the_edited_value_differs_in_bytes(old: Any, new: Any, style: dict[str, Any], around: Any) -> None:
    if not encodable([old, new, around]) or same(old, new):
        return
    document = {"first": around, "it": old, "last": [around, {"k": around}]}
    text, root = read((json.dumps(document, **style) + "\n \n").encode(), "f.json")
    node = walk(root, "it")[0]
    after = edited(text, root, {**document, "it": new})
    assert after.startswith(text[: node.start]) and after.endswith(text[node.end :])


def test_a_file_keeps_its_own_style() -> None:
    text = '{\r\n  "a" : [ 1,2 ],\r\n  "b": "\\u00b7 \\/",\r\n  "c": {"x": 1.50}\r\n}\r\n'
    read_text, root = read(text.encode(), "f.json")
    value = {"a": [1, 3, 4], "b": root.value["b"], "c": {"x": 1.5, "y": "\u00b7"}}
    assert edited(read_text, root, value) == (
        '{\r\n  "a" : [ 1,3,4 ],\r\n  "b": "\\u00b7 \\/",\r\n  "c": {"x": 1.50,"y": "\\u00b7"}\r\n}\r\n'
    )


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ('{"a": 1 , "b": [1 ,2]}', {"a": 1, "b": [1, 3]}, '{"a": 1 , "b": [1 ,3]}'),
        ('{"a": 1\n, "b": [1\t,2 ] }', {"a": 2, "b": [1, 2, 3]}, '{"a": 2\n, "b": [1\t,2,3 ] }'),
        ("[1 , 2 , 3 ]", [1, 2], "[1 , 2 ]"),
    ],
)
def test_white_space_before_a_comma_is_kept(before: str, value: Any, after: str) -> None:
    text, root = read(before.encode(), "f.json")
    assert edited(text, root, value) == after


def test_new_values_take_the_indent_of_their_place() -> None:
    text, root = read(json.dumps({"a": {"b": [1]}, "c": []}, indent=1).encode(), "f.json")
    after = edited(text, root, {"a": {"b": [1, {"d": [2]}]}, "c": [{"e": 1}]})
    assert after == json.dumps({"a": {"b": [1, {"d": [2]}]}, "c": [{"e": 1}]}, indent=1)


def test_the_seed_unchanged_is_the_seed() -> None:
    path = Path(__file__).resolve().parents[2].parent / "shared" / "lab" / "family-qwen-4b.json"
    if not path.is_file():
        pytest.skip("the lab's family file isn't beside this checkout")
    text, root = read(path.read_bytes(), path.name)
    value = json.loads(text)
    assert edited(text, root, value) == text
    value["run_measurements"][1]["metrics"]["ttft_ms"][0] = 99.5
    before, after = text.splitlines(), edited(text, root, value).splitlines()
    assert [(a, b) for a, b in zip(before, after, strict=True) if a != b] == [("     44.91,", "     99.5,")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"a": 1} x', "is not JSON"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b"[" * 200_000, "nests too deeply"),
        (b"[" * 3000 + b"]" * 3000, "nests too deeply"),
        (b" " * (MAX_BYTES + 1), "is larger than 8 MiB"),
    ],
)
def test_what_is_no_file_of_ours_gets_one_sentence(data: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read(data, "f.json")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ("[1.123, 1.12, 4.123]", 3),
        ("[1.123, 1.1234]", 3),  # one edited by hand
        ("[1.12, 1.1]", 2),  # a file that rounds to two
        ("[1.1234, 2.1234, 1.123]", 4),  # one that ends in a zero
        ("[1, 2]", 0),
        ("[]", 3),
    ],
)
def test_the_decimals_of_a_file(numbers: str, expected: int) -> None:
    text, root = read(numbers.encode(), "f.json")
    assert decimals(text, walk(root, "*"), 3) == expected
