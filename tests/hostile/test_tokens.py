"""Section A of the hostile cases, first token and token accounting, each played by a real socket server."""

from pathlib import Path

import pytest

from harness.measure.rows import chunk_gaps_ms
from harness.wire.completion import Reason
from tests.hostile.played import BURSTS, apart, complete, held_back, reason_of, sent
from tests.hostile.server import play, trickle
from tests.wire.build import (
    DONE,
    GOOD,
    answer,
    chunk,
    chunked,
    counts,
    event,
    usage,
)


@pytest.mark.parametrize("ids", [[], None], ids=["no ids", "null ids"])
def test_01_an_early_chunk_without_ids_is_a_first_byte_and_no_first_token(
    ids: list[int] | None, tmp_path: Path
) -> None:
    row = complete(held_back(tmp_path, chunk(ids, ""), GOOD)).row
    assert row.first_byte_ms is not None and row.first_event_ms is not None and row.ttft_ms is not None
    assert row.first_byte_ms <= row.first_event_ms < row.ttft_ms == row.chunks[0][0] / 1e6


def test_02_an_early_empty_chunk_makes_no_gap_between_tokens(tmp_path: Path) -> None:
    played = complete(held_back(tmp_path, chunk([], ""), GOOD))
    times, row = [ns / 1e6 for ns, _ in played.row.chunks], played.row
    assert [size for _, size in row.chunks] == [1, 2, 1], "the empty one is no chunk of ids"
    assert row.first_event_ms is not None and times[0] > row.first_event_ms
    assert sum(chunk_gaps_ms([row])) == pytest.approx(times[-1] - times[0], abs=1e-9), "the wait is in no gap"


def test_03_empty_text_with_ids_is_a_first_token(tmp_path: Path) -> None:
    pieces = answer(chunk([151, 233], "", prompt_ids=[1, 2, 3]), chunk([7], "é", finish="stop"), n=3)
    row = complete(held_back(tmp_path, pieces[0], pieces[1:])).row
    assert (row.token_ids, row.text, [size for _, size in row.chunks]) == ([151, 233, 7], "é", [2, 1])
    assert row.ttft_ms is not None and row.ttft_ms < row.chunks[1][0] / 1e6


def test_04_an_answer_of_done_alone_is_no_zero(tmp_path: Path) -> None:
    played = play(tmp_path, sent([DONE]))
    assert reason_of(played) is Reason.NO_TOKENS
    assert played.row.ttft_ms is None and played.row.tok_s_wall_full is None and played.row.completion_tokens is None


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_05_a_stream_of_reasoning_is_refused_by_name(field: str, tmp_path: Path) -> None:
    deltas = [{"index": 0, "delta": {field: "hm"}, "finish_reason": None}] * 50
    deltas += [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]
    played = play(tmp_path, sent([*(event({"id": "c", "choices": [delta]}) for delta in deltas), DONE]))
    assert reason_of(played) is Reason.BAD_EVENT and "only /v1/completions is measured" in played.row.detail


@pytest.mark.parametrize("sizes", [[3] * 40, [1, 4, 2, 4] * 11], ids=["three each", "one, four, two, four"])
def test_06_07_rates_count_ids_over_the_chunks_own_instants(sizes: list[int], tmp_path: Path) -> None:
    pieces = [chunk([9] * size, "x", prompt_ids=None if at else [1, 2, 3]) for at, size in enumerate(sizes)]
    pieces.append(chunk([], "", finish="length"))
    row = complete(play(tmp_path, *apart(answer(*pieces, n=sum(sizes))))).row
    assert row.ids_per_chunk == sum(sizes) / len(sizes)
    assert [size for _, size in row.chunks] == sizes
    offsets = [ns for ns, size in row.chunks for _ in range(size)]
    window = offsets[99] - offsets[0]
    assert row.tok_s_1_100 == (pytest.approx(99e9 / window) if window else None)


def test_08_chunks_of_text_without_ids_or_usage_have_no_rate(tmp_path: Path) -> None:
    played = play(tmp_path, *apart([*[chunk(None, "five of them ")] * 120, chunk(None, "", finish="stop"), DONE]))
    row = played.row
    assert reason_of(played) is Reason.IDS_MISSING
    assert row.tok_s_1_100 is row.tok_s_burst_exact is row.tok_s_wall_full is row.tok_s_after_ttft_full is None
    assert row.ids_per_chunk is None


def test_09_a_first_chunk_of_four_leaves_eight_intervals(tmp_path: Path) -> None:
    pieces = [chunk([1, 2, 3, 4], "", prompt_ids=[1, 2, 3]), *(chunk([n], "") for n in range(5, 13))]
    row = complete(play(tmp_path, *apart(answer(*pieces, chunk([], "", finish="stop"), n=12)))).row
    assert len(row.token_ids) == 12 and len(row.chunks) - 1 == 8


def test_10_usage_that_grows_before_the_ids_come_is_noted(tmp_path: Path) -> None:
    grown = [chunk([1], "a", usage=counts(1), prompt_ids=[1, 2, 3]), chunk([], "", usage=counts(5))]
    grown += [chunk([], "", usage=counts(9)), chunk(list(range(2, 10)), "b", usage=counts(9), finish="stop")]
    row = complete(play(tmp_path, sent(answer(*grown, n=9)))).row
    assert any(warning.startswith("buffered: ") for warning in row.warnings)
    assert [size for _, size in row.chunks] == [1, 8], "the ids alone have times"


@pytest.mark.parametrize("text", ["", "Hel", "lo" * 400], ids=["none", "short", "long"])
def test_12_13_how_long_the_text_is_says_nothing(text: str, tmp_path: Path) -> None:
    pieces = answer(*(chunk([n], text, prompt_ids=[1, 2, 3]) for n in range(120)), chunk([], "", finish="stop"), n=120)
    row = complete(play(tmp_path, sent(pieces))).row
    assert len(row.token_ids) == row.completion_tokens == 120 and row.text == text * 120


def test_13_usage_that_counts_more_than_came_is_invalid(tmp_path: Path) -> None:
    played = play(tmp_path, sent([*GOOD[:3], usage(512), DONE]))
    assert reason_of(played) is Reason.USAGE_IDS_MISMATCH and "4 token ids came, usage says 512" in played.row.detail


def test_14_the_prompt_is_what_the_server_says_it_read(tmp_path: Path) -> None:
    row = complete(play(tmp_path, sent(GOOD))).row
    assert row.prompt_token_ids == [1, 2, 3]


@pytest.mark.parametrize("missing", [0, 1, 2], ids=["first", "middle", "last"])
def test_15_18_an_id_missing_anywhere_is_invalid(missing: int, tmp_path: Path) -> None:
    pieces = [chunk([5 + n], "x", prompt_ids=None if n else [1, 2, 3]) for n in range(3)]
    pieces[missing] = chunk([], "x")
    played = play(tmp_path, sent(answer(*pieces, chunk([], "", finish="stop"), n=3)))
    assert reason_of(played) is Reason.USAGE_IDS_MISMATCH


def test_16_null_ids_never_fall_back_to_text(tmp_path: Path) -> None:
    played = play(tmp_path, sent(answer(chunk(None, "a"), chunk(None, "b", finish="stop"), n=2)))
    assert reason_of(played) is Reason.IDS_MISSING and played.row.token_ids == [] and played.row.text == "ab"


def test_18_escapes_are_read_by_a_json_parser_and_the_bytes_are_kept(tmp_path: Path) -> None:
    raw = rb'data: {"id":"cmpl-1","choices":[{"index":0,"text":"\"q\" \\ \n \u00e9 \ud83d\ude00","token_ids":[1,2,3]}]}'
    pieces = answer(raw + b"\n\n", chunk([], "", finish="stop"), n=3)
    played = complete(play(tmp_path, sent(pieces)))
    assert played.row.text == '"q" \\ \n é \U0001f600' and len(played.row.token_ids) == 3
    assert raw in played.exchange.data


def test_19_a_server_that_sends_ten_ids_at_a_time_is_on_the_record(tmp_path: Path) -> None:
    pieces = [chunk([9] * 10, "x", prompt_ids=None if n else [1, 2, 3]) for n in range(12)]
    writes = chunked(answer(*pieces, chunk([], "", finish="length"), n=120))
    script = [trickle(b"".join(writes), [sum(map(len, writes[: n + 1])) for n in range(len(writes))])]
    row = complete(play(tmp_path, *script)).row
    assert row.ids_per_chunk == 10.0
    assert row.warnings and {warning.partition(":")[0] for warning in row.warnings} <= BURSTS
