"""Properties of every answer, whatever its bytes: hostile cases, properties (i) to (iii)."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.wire.completion import PRECEDENCE, Completion, parse_completion
from harness.wire.exchange import Ending
from tests.wire.build import DONE, ERROR, HEAD, answer, chunk, chunked, counts, cut, exchange, sized, until_close

FRAMINGS = {"chunked": chunked, "sized": lambda pieces: sized(b"".join(pieces)), "close": until_close}
endings = st.sampled_from(Ending)
texts = st.text(st.characters(codec="utf-8"), max_size=5)
lines_ends = st.sampled_from([b"\n", b"\r", b"\r\n"])


@st.composite
def answers(draw: st.DrawFn) -> list[bytes]:
    """The pieces of a valid answer."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    running = draw(st.booleans())
    pieces = [chunk([], "")] if draw(st.booleans()) else []
    total = 0
    for place, size in enumerate(sizes):
        total += size
        ids = draw(st.lists(st.integers(0, 300_000), min_size=size, max_size=size))
        last = place == len(sizes) - 1
        said = counts(total) if running else None
        pieces.append(
            chunk(ids, draw(texts), finish="length" if last else None, usage=said, prompt_ids=None if place else [1, 2])
        )
        if draw(st.booleans()):
            pieces.append(b": ping\n\n")
    end = draw(lines_ends)
    return [piece.replace(b"\n", end) for piece in answer(*pieces, n=total)]


streams = st.builds(
    lambda pieces, framing: b"".join(FRAMINGS[framing](pieces)), answers(), st.sampled_from(sorted(FRAMINGS))
)


def said(completion: Completion) -> tuple[Any, ...]:
    """Everything that the bytes say, times left out."""
    got = completion
    ids = (got.token_ids, got.chunk_sizes, got.prompt_token_ids, got.text, got.usage)
    return (got.reason, got.detail, got.status, got.stream_id, got.finish_reason, *ids)


def check(completion: Completion) -> None:
    """What holds of every completion."""
    assert completion.complete == (completion.reason is None) == (completion.detail == "")
    assert completion.reason is None or completion.reason in PRECEDENCE
    assert len(completion.chunk_ns) == len(completion.chunk_sizes)
    assert sum(completion.chunk_sizes) == len(completion.token_ids)
    assert list(completion.chunk_ns) == sorted(completion.chunk_ns)
    completion.text.encode()
    if completion.complete:
        assert completion.status == 200
        assert completion.usage is not None
        assert len(completion.token_ids) == completion.usage.completion_tokens > 0
        assert completion.finish_reason in ("stop", "length")


@given(streams, st.data())
@settings(deadline=None)
def test_i_any_cut_of_a_valid_stream_says_the_same(data: bytes, draw: st.DataObject) -> None:
    whole = parse_completion(exchange([data]))
    assert whole.complete, whole.detail
    places = draw.draw(st.lists(st.integers(0, len(data)), max_size=30))
    assert said(parse_completion(exchange(cut(data, places)))) == said(whole)


@given(streams)
@settings(max_examples=20, deadline=None)
def test_i_one_byte_at_a_time_says_the_same(data: bytes) -> None:
    assert said(parse_completion(exchange(cut(data, range(len(data)))))) == said(parse_completion(exchange([data])))


@given(answers(), st.sampled_from(sorted(FRAMINGS)), st.data())
@settings(deadline=None)
def test_ii_no_strict_prefix_of_a_valid_stream_is_complete(
    pieces: list[bytes], framing: str, draw: st.DataObject
) -> None:
    data = b"".join(FRAMINGS[framing](pieces))
    # in a body that the end of file ends, [DONE] with its blank line is the end of the answer; with CRLF the CR ends it
    end = len(data) if framing != "close" else len(data.removesuffix(b"\n") if data.endswith(b"\r\n") else data)
    tail = draw.draw(st.sampled_from([0, end - len(DONE) - 8]))
    size = draw.draw(st.integers(max(0, tail), end - 1))
    got = parse_completion(exchange([data[:size]]))
    check(got)
    assert not got.complete
    whole = parse_completion(exchange([data]))
    assert whole.token_ids[: len(got.token_ids)] == got.token_ids
    assert whole.text.startswith(got.text)


@given(streams, st.integers(0, 10**12), st.data())  # not to before the request: that is a clock that was set
@settings(deadline=None)
def test_iii_a_shift_of_the_clock_shifts_times_and_nothing_else(data: bytes, shift: int, draw: st.DataObject) -> None:
    reads = cut(data, draw.draw(st.lists(st.integers(0, len(data)), max_size=10)))
    here, there = (parse_completion(exchange(reads, shift_ns=ns)) for ns in (0, shift))
    assert here.first_byte_ns is not None
    assert here.first_event_ns is not None
    moved = replace(
        here,
        chunk_ns=tuple(ns + shift for ns in here.chunk_ns),
        first_byte_ns=here.first_byte_ns + shift,
        first_event_ns=here.first_event_ns + shift,
        end_ns=here.end_ns + shift,
    )
    assert there == moved


mutations = st.one_of(
    st.tuples(st.just("drop"), st.integers(0, 10**6), st.integers(1, 40), st.just(b"")),
    st.tuples(st.just("put"), st.integers(0, 10**6), st.just(0), st.binary(max_size=8)),
    st.tuples(st.just("over"), st.integers(0, 10**6), st.integers(1, 8), st.binary(min_size=1, max_size=8)),
    st.tuples(
        st.just("words"),
        st.integers(0, 10**6),
        st.just(0),
        st.sampled_from(
            [
                ERROR,
                DONE,
                b"\n\n",
                b"\r",
                b"0\r\n\r\n",
                b"\xff",
                b"null",
                b"-1",
                b"[[",
                b'"',
                b"data: ",
                b"event: error\n",
                HEAD,
            ]
        ),
    ),
)


@given(streams, st.lists(mutations, min_size=1, max_size=4), endings, st.data())
@settings(max_examples=300, deadline=None)
def test_a_mutated_stream_is_complete_or_has_one_reason_however_it_was_cut(
    data: bytes, changes: list[tuple[str, int, int, bytes]], ending: Ending, draw: st.DataObject
) -> None:
    for _, where, size, put in changes:
        place = where % (len(data) + 1)
        data = data[:place] + put + data[place + size :]
    whole = parse_completion(exchange([data], ending=ending))
    check(whole)
    parts = parse_completion(
        exchange(cut(data, draw.draw(st.lists(st.integers(0, len(data)), max_size=8))), ending=ending)
    )
    check(parts)
    # h11 words a fault in the headers by what it has seen of them; everything else is the same
    assert said(replace(parts, detail="")) == said(replace(whole, detail=""))


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda tail: HEAD + b"\r\n" + tail)), endings)
@settings(deadline=None)
def test_random_bytes_give_a_completion_with_one_reason(data: bytes, ending: Ending) -> None:
    got = parse_completion(exchange([data], ending=ending))
    check(got)
    assert not got.complete


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["id", "object", "choices", "index", "text", "token_ids", "finish_reason", "usage", "error", "message"]
            )
            | st.sampled_from(
                ["prompt_tokens", "completion_tokens", "prompt_token_ids", "prompt_tokens_details", "delta"]
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=15,
)


@given(json_values, st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_any_json_in_an_event_gives_a_completion(value: Any, place: int) -> None:
    pieces = answer(chunk([5], "a"), chunk([8], "", finish="stop"), n=2)
    bad = b"data: " + json.dumps(value).encode() + b"\n\n"
    got = parse_completion(exchange(chunked([*pieces[:place], bad, *pieces[place:]])))
    check(got)
    assert set(got.token_ids) >= {5, 8}
