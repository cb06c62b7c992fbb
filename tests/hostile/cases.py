"""Which test shows each hostile case: sections A to D, which a server can play. Titles are ours, numbers the list's."""

from typing import NamedTuple


class Case(NamedTuple):
    """One case of the list."""

    number: int
    title: str
    expect: str
    """what the harness does; ``open: …`` where a part of it isn't built"""
    shown: tuple[str, ...]
    """tests, each ``file::function``"""


A, B, C, D = "ABCD"
TOKENS = "tests/hostile/test_tokens.py::"
ANSWERS = "tests/hostile/test_answers.py::"
CAMPAIGNS = "tests/hostile/test_campaigns.py::"
LOAD = "tests/hostile/test_load.py::"
COMPILATIONS = "tests/hostile/test_compilations.py::"
LOOKS = "tests/hostile/test_looks.py::"
CANARY = "tests/hostile/test_stream_canary.py::"
FUZZ = "tests/hostile/test_fuzz.py::"
COMPLETION = "tests/wire/test_completion.py::"
ENDINGS = "tests/wire/test_completion_endings.py::"
EVENTS = "tests/wire/test_completion_events.py::"
PROPERTIES = "tests/wire/test_properties.py::"

INVALID = "invalid row, named reason, never in a median"
ENDED = "test_29_32_34_35_every_other_ending_has_a_reason_of_its_own"
TWELVE = CAMPAIGNS + "test_27_to_46_twelve_prompts_are_struck_by_twelve_faults"
THROTTLE = CAMPAIGNS + "test_53_to_56_a_rung_of_a_server_that_throttles"
NO_CUT = ANSWERS + "test_20_21_22_24_no_cut_changes_what_is_read"

SECTIONS: dict[str, list[Case]] = {
    A: [
        Case(
            1,
            "an empty chunk comes first",
            "TTFT is the first id; the early byte stands apart",
            (TOKENS + "test_01_an_early_chunk_without_ids_is_a_first_byte_and_no_first_token",),
        ),
        Case(
            2,
            "a long wait after an empty chunk",
            "the wait is no gap between tokens",
            (TOKENS + "test_02_an_early_empty_chunk_makes_no_gap_between_tokens",),
        ),
        Case(
            3,
            "ids without text",
            "they are the first token and are counted",
            (TOKENS + "test_03_empty_text_with_ids_is_a_first_token",),
        ),
        Case(4, "[DONE] alone", "invalid, never a zero", (TOKENS + "test_04_an_answer_of_done_alone_is_no_zero",)),
        Case(
            5,
            "reasoning deltas of a chat stream",
            "refused by name: only completions are measured",
            (
                TOKENS + "test_05_a_stream_of_reasoning_is_refused_by_name",
                COMPLETION + "test_05_a_real_chat_stream_is_refused_by_name",
            ),
        ),
        Case(
            6,
            "several ids in each chunk",
            "rates count ids; ids per chunk stand beside",
            (TOKENS + "test_06_07_rates_count_ids_over_the_chunks_own_instants",),
        ),
        Case(
            7,
            "irregular numbers of ids",
            "rates from ids and the chunks' instants",
            (TOKENS + "test_06_07_rates_count_ids_over_the_chunks_own_instants",),
        ),
        Case(
            8,
            "chunks of text without ids or usage",
            "no rate at all",
            (TOKENS + "test_08_chunks_of_text_without_ids_or_usage_have_no_rate",),
        ),
        Case(
            9,
            "several ids in the first chunk",
            "only later ids make intervals",
            (
                TOKENS + "test_09_a_first_chunk_of_four_leaves_eight_intervals",
                "tests/measure/test_rates.py::"
                "test_first_chunk_with_four_ids_leaves_its_ids_out_of_the_burst_exact_rate",
            ),
        ),
        Case(
            10,
            "usage that runs ahead of the ids",
            "noted as buffered; times are of ids alone",
            (TOKENS + "test_10_usage_that_grows_before_the_ids_come_is_noted",),
        ),
        Case(
            11,
            "a peak below the mean",
            "no peak over buckets is computed; the rates of a batch are tokens by time",
            (
                "tests/measure/test_ladder.py::test_rates_are_tokens_over_time",
                "tests/measure/test_ladder.py::test_rates_count_ids_not_chunks",
            ),
        ),
        Case(
            12,
            "text that tokenizes to another count",
            "text is never tokenized for timing",
            (TOKENS + "test_12_13_how_long_the_text_is_says_nothing",),
        ),
        Case(
            13,
            "usage and ids that disagree",
            INVALID,
            (
                TOKENS + "test_13_usage_that_counts_more_than_came_is_invalid",
                TOKENS + "test_12_13_how_long_the_text_is_says_nothing",
            ),
        ),
        Case(
            14,
            "another tokenizer at the server",
            "the server's own prompt ids are kept, and must agree between arm and oracle",
            (
                TOKENS + "test_14_the_prompt_is_what_the_server_says_it_read",
                "tests/measure/test_identity.py::test_a_prompt_unfit_on_one_side_is_a_problem_and_not_exact",
            ),
        ),
        Case(
            15, "an id lost in the middle", INVALID, (TOKENS + "test_15_18_an_id_missing_anywhere_is_invalid", TWELVE)
        ),
        Case(
            16,
            "null ids with the right text",
            "invalid: text is no substitute",
            (TOKENS + "test_16_null_ids_never_fall_back_to_text", TWELVE),
        ),
        Case(
            18,
            "ids lost at the end; escapes cut by hand",
            "invalid; where usage agrees, --stream-canary finds it; a JSON parser alone reads, the raw bytes are kept",
            (
                TOKENS + "test_15_18_an_id_missing_anywhere_is_invalid",
                CANARY + "test_18_a_stream_that_loses_its_last_id_fails_the_canaries_and_no_other_gate",
                CANARY + "test_18_an_answer_from_a_cache_is_no_proof",
                TOKENS + "test_18_escapes_are_read_by_a_json_parser_and_the_bytes_are_kept",
            ),
        ),
        Case(
            19,
            "ten ids at a time",
            "ids per chunk on the record, and a warning",
            (TOKENS + "test_19_a_server_that_sends_ten_ids_at_a_time_is_on_the_record",),
        ),
    ],
    B: [
        Case(
            20,
            "writes cut at spaces and after the field's name",
            "the same for every cut",
            (NO_CUT, EVENTS + "test_20_21_every_split_point_gives_the_same_completion"),
        ),
        Case(
            21,
            "one byte a write",
            "the same tokens; an event has the time of its last byte",
            (NO_CUT, ANSWERS + "test_21_an_event_is_stamped_when_its_last_byte_came"),
        ),
        Case(22, "a character cut in two", "whole, no replacement", (NO_CUT,)),
        Case(
            23,
            "Unicode line ends inside JSON",
            "one event",
            (
                ANSWERS + "test_23_unicode_line_ends_end_no_event",
                ANSWERS + "test_23_other_breaks_raw_in_a_string_are_one_event_of_bad_json",
            ),
        ),
        Case(
            24,
            "CRLF, CR, and mixtures, cut anywhere",
            "accepted",
            (NO_CUT, EVENTS + "test_24_every_line_end_is_accepted_at_every_split"),
        ),
        Case(
            25,
            "no space, comments, other fields, several data lines",
            "accepted by the rules",
            (ANSWERS + "test_25_every_field_of_the_rules_is_accepted",),
        ),
        Case(
            27,
            "an error inside of a 200",
            "failed, with the server's words",
            (ANSWERS + "test_27_an_error_in_a_200_is_a_failure_with_its_words", TWELVE),
        ),
        Case(28, "one malformed event", INVALID, (ANSWERS + "test_28_one_malformed_event_makes_the_row_invalid",)),
        Case(
            29,
            "an end without finish_reason, usage, [DONE] or last chunk; a reset",
            "one reason for each; vLLM's own ending is whole",
            (
                ANSWERS + ENDED,
                ANSWERS + "test_29_35_a_reset_in_mid_stream_keeps_what_came",
                ANSWERS + "test_29_32_vllms_own_ending_is_no_false_alarm",
            ),
        ),
        Case(
            30,
            "the socket stays open after [DONE]",
            "returns, discards the connection",
            (ANSWERS + "test_30_an_answer_on_a_connection_left_open_ends_at_done",),
        ),
        Case(
            32,
            "a chunk of usage alone",
            "handled",
            (ANSWERS + "test_29_32_vllms_own_ending_is_no_false_alarm", ANSWERS + ENDED),
        ),
        Case(
            34,
            "usage missing, null, repeated; no cached_tokens",
            "a reason each; missing is never 0",
            (
                ANSWERS + ENDED,
                ANSWERS + "test_34_38_cached_tokens_are_zero_only_when_they_are_the_integer_zero",
                ANSWERS + "test_34_equal_usage_twice_is_noted_and_whole",
            ),
        ),
        Case(35, "a body shorter than its length", "what came is kept, invalid", (ANSWERS + ENDED,)),
        Case(
            36,
            "HTML, JSON, 503, 429, gzip, latin-1",
            "named; nothing is asked again in silence",
            (
                ANSWERS + "test_36_an_answer_of_another_kind_is_named",
                CAMPAIGNS + "test_36_a_server_that_is_busy_is_not_asked_again_behind_our_back",
            ),
        ),
    ],
    C: [
        Case(
            38,
            "cached prompts",
            "any count but the integer 0 fails the row",
            (
                ANSWERS + "test_34_38_cached_tokens_are_zero_only_when_they_are_the_integer_zero",
                "tests/test_campaign.py::test_gate_that_fails_withholds_the_number",
            ),
        ),
        Case(
            39,
            "warm-up with a measured prompt",
            "nothing asked before stands in the suite",
            (
                CAMPAIGNS + "test_39_nothing_asked_before_the_suite_stands_in_it",
                "tests/workloads/test_canaries.py::test_canary_and_readiness_prompts_are_in_no_suite",
            ),
        ),
        Case(
            40,
            "calls that evidence doesn't list",
            "the server saw what the capture holds, nothing else",
            (CAMPAIGNS + "test_40_every_model_call_that_the_server_saw_is_listed",),
        ),
        Case(
            41,
            "the first request pays a compilation",
            "marked cold; centers are medians; what the log tells of compilations meanwhile is counted and shown",
            (
                ANSWERS + "test_41_a_first_request_that_pays_a_compilation_is_marked_cold",
                COMPILATIONS + "test_41_a_compilation_while_it_is_measured_is_counted_shown_and_the_row_is_cold",
                COMPILATIONS + "test_41_a_ladder_says_in_which_pass_and_the_warm_up_takes_it",
                COMPILATIONS + "test_41_a_line_whose_time_is_not_known_is_unknown",
                "tests/launch/test_jit.py::test_41_every_wording_is_seen",
                "tests/measure/test_ladder.py::test_published_rate_leaves_the_warm_up_out",
            ),
        ),
        Case(
            42,
            "one cache of several is filled before",
            "a cache directory that exists is refused; what is in it is listed",
            (
                "tests/launch/test_process.py::test_an_existing_cache_is_refused_and_kept",
                "tests/evidence/test_store.py::test_cache_listing_counts_every_file",
            ),
        ),
        Case(
            43,
            "TTFT depends on the gap before",
            "one at a time, and the gaps are recorded",
            (CAMPAIGNS + "test_43_55_requests_come_one_at_a_time_and_their_gaps_are_recorded",),
        ),
        Case(
            44,
            "the burst at the start",
            "the ramp is in the wall rate; the steady rate stands apart",
            ("tests/measure/test_ladder.py::test_rates_of_two_staggered_streams", THROTTLE),
        ),
        Case(
            45,
            "ignore_eos ignored",
            "the rung is invalid",
            (CAMPAIGNS + "test_45_an_ignored_ignore_eos_makes_the_rung_invalid",),
        ),
        Case(46, "early clean ends in some rows", "fewer than 100 ids fail the workload", (TWELVE,)),
        Case(
            48,
            "synthetic or degenerate acceptance",
            "refused; 0 % and 100 % are warned about",
            (
                "tests/evidence/test_fresh.py::test_synthetic_acceptance_is_refused",
                "tests/evidence/test_fresh.py::test_acceptance_of_everything_is_a_warning",
            ),
        ),
    ],
    D: [
        Case(
            49,
            "the engine stalls or dies, the socket stays",
            "idle timeout between bytes; then its log and state",
            (
                ANSWERS + "test_49_50_a_server_that_falls_silent_is_left",
                ANSWERS + "test_49_bytes_that_keep_coming_do_not_hide_a_stall_for_ever",
                CAMPAIGNS + "test_49_a_server_that_hangs_is_asked_no_further_and_its_bytes_are_kept",
                CAMPAIGNS + "test_49_a_server_that_breaks_off_and_is_unhealthy_is_dead",
                "tests/test_campaign.py::test_engine_that_dies_leaves_no_verdict_and_a_way_on",
            ),
        ),
        Case(50, "no headers", "a timeout of its own", (ANSWERS + "test_49_50_a_server_that_falls_silent_is_left",)),
        Case(
            51,
            "a slow prefill",
            "success",
            (
                ANSWERS + "test_51_a_first_byte_later_than_other_clients_wait_is_a_success",
                ENDINGS + "test_51_a_first_byte_after_twelve_seconds_is_a_success",
            ),
        ),
        Case(
            53,
            "a server that waits for all connections",
            "all arrive, or it is refused by name",
            (
                LOAD + "test_53_55_a_server_that_answers_only_a_full_house_of_128",
                THROTTLE,
                "tests/wire/test_transport.py::test_more_connections_than_files_may_be_open_are_refused_by_name",
            ),
        ),
        Case(
            54,
            "requests wait in a queue",
            "the server's is in the TTFT; our own release stands apart",
            (LOAD + "test_54_time_in_the_servers_queue_is_in_the_ttft_and_the_release_stands_apart",),
        ),
        Case(
            55,
            "concurrency off by one",
            "the peak is the rung; releases are recorded",
            (THROTTLE, LOAD + "test_53_55_a_server_that_answers_only_a_full_house_of_128"),
        ),
        Case(
            56,
            "the server runs fewer at a time",
            "tokens by wall; the peak of its running requests stands beside the rung, and is named",
            (
                THROTTLE,
                LOAD + "test_56_a_throttled_batch_has_the_rate_of_its_tokens_over_its_wall",
                LOOKS + "test_56_a_server_that_runs_four_of_sixteen_is_named_and_its_rate_is_tokens_by_wall",
                LOOKS + "test_56_looks_are_few_and_keep_only_two_gauges",
            ),
        ),
        Case(
            57,
            "Nagle and a delayed acknowledgement",
            "every connection is new, so there is no such delay",
            (LOAD + "test_57_two_small_writes_of_a_server_with_nagle_meet_no_delayed_ack",),
        ),
        Case(
            59,
            "everything in one burst",
            "flagged, without a rate",
            (
                ANSWERS + "test_59_an_answer_held_back_to_its_end_is_flagged",
                "tests/test_campaign.py::test_answer_in_one_read_has_no_rate_and_is_no_verdict",
            ),
        ),
        Case(
            60,
            "large first chunks of many streams",
            "the lag meter says so",
            (LOAD + "test_60_a_client_that_is_flooded_says_so",),
        ),
        Case(
            61,
            "localhost resolves to ::1 first",
            "the literal address is used",
            (CAMPAIGNS + "test_61_62_a_dead_proxy_and_an_ambiguous_name_are_no_obstacle",),
        ),
        Case(
            62,
            "a proxy in the environment",
            "ignored",
            (
                CAMPAIGNS + "test_61_62_a_dead_proxy_and_an_ambiguous_name_are_no_obstacle",
                "tests/wire/test_transport.py::test_the_environments_proxy_is_not_used",
            ),
        ),
    ],
}

KINDS: dict[str, tuple[str, ...]] = {
    "any cut gives the same tokens": (PROPERTIES + "test_i_any_cut_of_a_valid_stream_says_the_same",),
    "no prefix is complete": (PROPERTIES + "test_ii_no_strict_prefix_of_a_valid_stream_is_complete",),
    "a shift of the clock changes no figure": (
        PROPERTIES + "test_iii_a_shift_of_the_clock_shifts_times_and_nothing_else",
        "tests/measure/test_rows.py::test_a_constant_shift_of_either_clock_changes_nothing",
    ),
    "regrouping delays TTFT by the first burst at most": (
        "tests/measure/test_rates.py::test_holding_ids_back_delays_ttft_by_no_more_than_the_first_burst",
    ),
    "any bytes are complete or have one reason": (
        FUZZ + "test_no_bytes_break_the_way_to_a_row",
        FUZZ + "test_everything_in_the_corpus_ends_well",
        FUZZ + "test_an_endless_line_is_held_in_its_limit",
    ),
}
"""Properties of every case of a kind → their tests."""
