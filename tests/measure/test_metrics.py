"""/metrics: two scrapes → what happened between them. Real scrapes of vLLM where they are beside the checkout."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.measure.metrics import (
    MAX_TEXT,
    Counters,
    acceptance,
    counter_resets,
    exclusive_use,
    parse_metrics,
    restarted,
    settled,
)

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "vllm-cpu" / "samples"


def sample(name: str) -> Counters:
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip(f"the recorded scrape {name} isn't beside this checkout")
    return parse_metrics(path.read_text())


def scrape(
    requests: float = 0, tokens: float = 0, running: float = 0, waiting: float = 0, more: str = "", engine: int = 0
) -> str:
    label = f'engine="{engine}",model_name="m"'
    return f"""# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{{label}}} {running}
# HELP vllm:num_requests_waiting Waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{{label}}} {waiting}
# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{{label}}} {tokens}
# HELP vllm:request_success_total Requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{{finished_reason="stop",{label}}} {requests}
vllm:request_success_total{{finished_reason="length",{label}}} 0
{more}"""


def test_recorded_depth_0_server_has_no_speculative_family() -> None:
    before, after = sample("mtp0-metrics-before.prom"), sample("mtp0-metrics-after.prom")
    assert not before.speculative and not after.speculative
    assert acceptance(before, after) is None
    assert after.totals["vllm:request_success_total"] > before.totals["vllm:request_success_total"]
    assert not any(name.endswith(("_created", "_bucket")) for name in after.totals)
    assert counter_resets(before, after) == []
    assert counter_resets(after, before) != [], "scrapes in the wrong order are a reset"


def test_recorded_depth_3_server_accepted_every_draft() -> None:
    before, after = sample("mtp3-metrics-before.prom"), sample("mtp3-metrics-after.prom")
    found = acceptance(parse_metrics(""), after)
    assert found is not None
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (445, 1335, 1335)
    assert (found.rate, found.mean_acceptance_length) == (1.0, 4.0)
    assert found.per_position == [1.0, 1.0, 1.0]
    between = acceptance(before, after)
    assert between is not None
    assert (between.drafts, between.draft_tokens, between.rate, between.mean_acceptance_length) == (13, 39, 1.0, 4.0)
    tokens = round(after.totals["vllm:generation_tokens_total"] - before.totals["vllm:generation_tokens_total"])
    requests = round(after.totals["vllm:request_success_total"] - before.totals["vllm:request_success_total"])
    assert exclusive_use(before, after, requests=requests, tokens=tokens) == []
    assert settled(before, after, requests=requests, tokens=tokens)
    assert exclusive_use(before, after, requests=requests - 1, tokens=tokens - 5) == [
        f"the server counted {requests} requests, ours were {requests - 1}",
        f"the server counted {tokens} tokens, ours were {tokens - 5}",
    ]


def test_engines_are_summed_and_created_is_no_count() -> None:
    """Hostile case 71: two engine labels and _created series."""
    two = scrape(3, 40) + scrape(2, 60, engine=1).replace("# ", "# x ")
    created = 'vllm:request_success_created{engine="0",finished_reason="stop",model_name="m"} 1.7e9\n'
    found = parse_metrics(two + created)
    assert found.totals["vllm:request_success_total"] == 5
    assert found.totals["vllm:generation_tokens_total"] == 100
    assert "vllm:request_success_created" not in found.totals


def test_counter_that_resets_in_one_engine_is_not_hidden_by_the_other() -> None:
    before = parse_metrics(scrape(10, 100) + scrape(10, 100, engine=1).replace("# ", "# x "))
    after = parse_metrics(scrape(3, 30) + scrape(25, 260, engine=1).replace("# ", "# x "))
    assert after.totals["vllm:request_success_total"] - before.totals["vllm:request_success_total"] == 8
    problems = exclusive_use(before, after, requests=8, tokens=90)
    assert problems == [
        "counter vllm:generation_tokens_total went down between the scrapes: the server restarted",
        "counter vllm:request_success_total went down between the scrapes: the server restarted",
    ]


def test_series_that_vanishes_is_a_reset() -> None:
    before = parse_metrics(scrape(1, 1))
    assert counter_resets(before, parse_metrics("")) == [
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
    ]


def started(seconds: str, labels: str = "") -> str:
    return f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds{labels} {seconds}\n"


def test_another_start_time_is_a_restart_even_where_no_counter_goes_down() -> None:
    before = parse_metrics(scrape(1, 1, more=started("1.79e9")))
    same, other = (parse_metrics(scrape(5, 50, more=started(when))) for when in ("1.79e9", "1.790000001e9"))
    assert before.process_start == 1.79e9
    assert restarted(before, same) == ""
    assert exclusive_use(before, same, requests=4, tokens=49) == []
    assert "process_start_time_seconds changed" in restarted(before, other)
    assert exclusive_use(before, other, requests=4, tokens=49) == [restarted(before, other)]


def test_without_a_start_time_a_counter_that_goes_down_tells() -> None:
    before, silent = parse_metrics(scrape(3, 30, more=started("1.79e9"))), parse_metrics(scrape(5, 50))
    assert silent.process_start is None
    assert restarted(before, silent) == restarted(silent, parse_metrics(scrape(6, 60, more=started("1e9")))) == ""
    assert parse_metrics(started("5", '{pid="1"}')).process_start is None, "one of several processes"
    fallen = restarted(silent, before)
    assert (
        fallen == "the server was started again while it was measured (counter vllm:generation_tokens_total went down)"
    )


def test_recorded_servers_were_not_restarted() -> None:
    before, after = sample("mtp3-metrics-before.prom"), sample("mtp3-metrics-after.prom")
    assert before.process_start == after.process_start
    assert restarted(before, after) == ""


def test_missing_families_prove_nothing() -> None:
    nothing = parse_metrics("# nothing\n")
    problems = exclusive_use(nothing, nothing, requests=0, tokens=0)
    assert len(problems) == 6 and all(problem.endswith("so exclusive use is not proven") for problem in problems)
    assert problems[0] == "/metrics has no vllm:request_success_total, so exclusive use is not proven"


def test_others_that_run_or_wait_are_seen() -> None:
    before, after = parse_metrics(scrape(1, 1, running=1)), parse_metrics(scrape(2, 8, waiting=3))
    assert exclusive_use(before, after, requests=1, tokens=7) == [
        "1 requests were running before the attempt",
        "3 requests were waiting after the attempt",
    ]


def test_prefix_cache_that_was_asked_is_on() -> None:
    more = "# TYPE vllm:prefix_cache_queries_total counter\nvllm:prefix_cache_queries_total{} 12\n"
    found = exclusive_use(parse_metrics(scrape()), parse_metrics(scrape(more=more)), requests=0, tokens=0)
    assert found == ["the prefix cache was asked 12 times although caching is off"]


def speculative(drafts: int, proposed: int, at: list[int]) -> str:
    lines = [
        f"vllm:spec_decode_num_drafts_total{{}} {drafts}",
        f"vllm:spec_decode_num_draft_tokens_total{{}} {proposed}",
        f"vllm:spec_decode_num_accepted_tokens_total{{}} {sum(at)}",
    ]
    lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} {n}' for i, n in enumerate(at)]
    return "\n".join(lines) + "\n"


@given(
    drafts=st.integers(0, 10_000),
    rates=st.lists(st.floats(0, 1), min_size=1, max_size=6),
    earlier=st.integers(0, 1000),
)
def test_acceptance_between_any_two_scrapes(drafts: int, rates: list[float], earlier: int) -> None:
    """Length = 1 + accepted / drafts (contract section 2), however much was counted before."""
    rates = sorted(rates, reverse=True)
    depth, at = len(rates), [int(drafts * rate) for rate in rates]
    before = speculative(earlier, earlier * depth, [earlier] * depth)
    after = speculative(earlier + drafts, (earlier + drafts) * depth, [earlier + n for n in at])
    found = acceptance(parse_metrics(before), parse_metrics(after))
    assert found is not None
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (drafts, drafts * depth, sum(at))
    if drafts == 0:
        assert (found.rate, found.mean_acceptance_length, found.per_position) == (None, None, [])
    else:
        assert found.mean_acceptance_length == 1 + sum(at) / drafts
        assert found.rate is not None and 0 <= found.rate <= 1
        assert found.per_position == [n / drafts for n in at]


@pytest.mark.parametrize(
    "text",
    [
        "<html>",
        "vllm:x{",
        'vllm:generation_tokens_total{engine="0"} many\n',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0"} 1\n',
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="first"} 1\n',
    ],
)
def test_text_of_another_kind(text: str) -> None:
    with pytest.raises(ValueError, match="/metrics did not answer in the Prometheus text format"):
        parse_metrics(text)


def test_text_without_end() -> None:
    with pytest.raises(ValueError, match="answered more than 16 MiB"):
        parse_metrics("#" * (MAX_TEXT + 1))


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_values_that_are_no_counts(value: str) -> None:
    with pytest.raises(ValueError, match=r"/metrics did not answer .* \(vllm:generation_tokens_total is (nan|inf)\)"):
        parse_metrics(scrape(1, 1).replace('model_name="m"} 1', f'model_name="m"}} {value}'))


def test_only_vllms_own_samples_are_counted_and_of_a_histogram_its_sum_and_count() -> None:
    more = """# TYPE vllm:e2e_seconds histogram
vllm:e2e_seconds_bucket{le="1.0"} 3
vllm:e2e_seconds_bucket{le="+Inf"} 4
vllm:e2e_seconds_count 4
vllm:e2e_seconds_sum 2.5
# TYPE python_gc_objects counter
python_gc_objects_total 9
"""
    found = parse_metrics(scrape(1, 2, more=more))
    assert {name for name in found.totals if "seconds" in name} == {"vllm:e2e_seconds_count", "vllm:e2e_seconds_sum"}
    assert not any(name.startswith("python") for name in found.totals)


def test_a_gauge_may_be_no_number() -> None:
    assert math.isnan(parse_metrics("vllm:num_requests_running NaN\n").totals["vllm:num_requests_running"])


def test_a_server_is_speculative_by_its_families_alone() -> None:
    assert parse_metrics(scrape(more=speculative(1, 3, [1, 1, 1]))).speculative
    assert not parse_metrics(scrape()).speculative
    assert acceptance(parse_metrics(""), parse_metrics(scrape())) is None


def test_one_draft_is_enough_for_figures_and_none_is_not() -> None:
    found = acceptance(parse_metrics(""), parse_metrics(speculative(1, 1, [1])))
    assert found is not None
    assert (found.rate, found.mean_acceptance_length, found.per_position) == (1.0, 2.0, [1.0])
    found = acceptance(parse_metrics(""), parse_metrics(speculative(4, 8, [3, 1])))
    assert found is not None
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (4, 8, 4)
    assert (found.rate, found.mean_acceptance_length, found.per_position) == (0.5, 2.0, [0.75, 0.25])
    with pytest.raises(ValidationError, match="frozen"):
        found.drafts = 1  # type: ignore[misc]


def test_counts_of_others_are_told_as_they_are() -> None:
    before, after = parse_metrics(scrape(1, 10)), parse_metrics(scrape(4, 100))
    assert exclusive_use(before, after, requests=2, tokens=80) == [
        "the server counted 3 requests, ours were 2",
        "the server counted 90 tokens, ours were 80",
    ]
    assert settled(before, after, requests=3, tokens=90) is True
    assert settled(before, after, requests=2, tokens=90) is False


def test_sixteen_mebibytes_are_still_read() -> None:
    assert MAX_TEXT == 16_777_216
    assert parse_metrics("#" * 16_777_215 + "\n").totals == {}
