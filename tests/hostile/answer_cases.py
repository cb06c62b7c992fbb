"""Sections A and B: which test shows each case of tokens and of what comes over the wire."""

from tests.hostile.case import (
    ANSWERS,
    CAMPAIGNS,
    CANARY,
    COMPLETION,
    ENDED,
    EVENTS,
    INVALID,
    NO_CUT,
    TOKENS,
    TWELVE,
    Case,
)

A, B = "AB"

ANSWER_SECTIONS: dict[str, list[Case]] = {
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
}
