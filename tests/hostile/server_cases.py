"""Sections C and D: which test shows each case of warm-up, caches, hangs and connections."""

from tests.hostile.case import ANSWERS, CAMPAIGNS, COMPILATIONS, ENDINGS, LOAD, LOOKS, THROTTLE, TWELVE, Case

C, D = "CD"

SERVER_SECTIONS: dict[str, list[Case]] = {
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
