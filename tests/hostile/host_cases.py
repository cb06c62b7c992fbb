"""Sections E to G of the list, which files, hosts and containers play."""

from tests.hostile.case import COMPLETION, TOKENS, Case

FILES = "tests/hostile/test_files.py::"
IDENTITY = "tests/hostile/test_identity.py::"
DOCKER = "tests/launch/test_docker.py::"
DISK = "tests/e2e/test_disk_docker.py::"
TWO = "tests/e2e/test_two_campaigns_docker.py::"
ENGINE = "tests/e2e/test_engine_faults_docker.py::"
GONE = "tests/e2e/test_engine_gone_docker.py::"
POINTS = "tests/e2e/test_kill_points_docker.py::"
SIGNALS = "tests/e2e/test_signals_docker.py::"
KILL = "tests/e2e/test_kill_docker.py::"
VLLM = "tests/e2e/test_failures_vllm.py::"

E, F, G = "EFG"
NOTHING_LEFT = "no server is left, what was recorded verifies, a resume goes on"

HOST_SECTIONS: dict[str, list[Case]] = {
    E: [
        Case(
            63,
            "no token, so no time",
            "null with a reason, never arithmetic with 0",
            (TOKENS + "test_04_an_answer_of_done_alone_is_no_zero", COMPLETION + "test_04_only_done_has_no_tokens"),
        ),
        Case(
            65,
            "rows that fail fast",
            "no median over the others",
            (FILES + "test_65_no_median_over_the_rows_that_survived",),
        ),
        Case(66, "p99 of twelve values", "refused", (FILES + "test_66_twelve_values_have_no_99th_percentile",)),
        Case(
            67,
            "NaN, infinities, rates of one token",
            "null with a reason; no file takes them",
            (FILES + "test_67_a_number_that_is_none_reaches_no_file",),
        ),
        Case(
            68,
            "a value that can't be written",
            "it fails when it is recorded, not at the end",
            (FILES + "test_68_a_record_that_can_not_be_written_fails_as_it_happens",),
        ),
        Case(
            69,
            "kill -9, or a full disk, in mid-campaign",
            NOTHING_LEFT,
            (
                POINTS + "test_kill_9_at_random_points",
                KILL + "test_after_kill_9_a_resume_removes_the_leftover_and_takes_a_fresh_server",
                DISK + "test_69_full_while_the_capture_is_written",
                FILES + "test_69_a_capture_whose_disk_was_full_for_a_moment_has_no_gap",
                FILES + "test_69_a_journal_whose_disk_was_full_for_a_moment_goes_on",
            ),
        ),
        Case(
            70,
            "two harnesses in one directory or on one card; a resume with another flag",
            "the second is refused by name",
            (
                TWO + "test_70_two_resumes_of_one_directory",
                TWO + "test_70_one_campaign_per_card",
                TWO + "test_70_same_out_and_same_second",
                TWO + "test_70_resume_with_an_edited_flag",
            ),
        ),
        Case(
            71,
            "several engines in /metrics, _created, a counter that resets",
            "summed, left out, invalid",
            (
                "tests/measure/test_metrics.py::test_engines_are_summed_and_created_is_no_count",
                "tests/measure/test_metrics.py::test_counter_that_resets_in_one_engine_is_not_hidden_by_the_other",
            ),
        ),
    ],
    F: [
        Case(
            72,
            "one id of one slot of 64 differs",
            "63/64, withheld, the place is kept",
            (IDENTITY + "test_72_one_flipped_id_in_one_of_64_slots_withholds_the_rung",),
        ),
        Case(
            73,
            "answers that differ at high rungs only",
            "each rung has its own verdict",
            (IDENTITY + "test_73_a_rung_inherits_no_verdict",),
        ),
        Case(
            74,
            "an arm that differs from its first id; acceptance of everything",
            "the arm fails with its evidence; a warning",
            (
                IDENTITY + "test_74_an_arm_that_differs_from_the_first_id_fails_with_its_evidence",
                "tests/evidence/test_fresh.py::test_acceptance_of_everything_is_a_warning",
            ),
        ),
        Case(
            75,
            "a server poisoned by a rung",
            "found by the canaries after it; the run ends",
            ("tests/test_ladder_campaign.py::test_server_that_is_poisoned_or_dead_ends_the_run",),
        ),
        Case(
            76,
            "two servers that say nothing",
            "not equal",
            (IDENTITY + "test_76_two_servers_that_say_nothing_are_not_equal",),
        ),
        Case(
            77,
            "oracle and arm are one server",
            "refused",
            (IDENTITY + "test_77_an_oracle_that_is_the_arm_s_own_server_is_none",),
        ),
    ],
    G: [
        Case(
            79,
            "a stale server holds the port, even with the right name",
            "refused before the first prompt; it is left alone",
            (
                ENGINE + "test_79_a_stale_server_with_the_right_name_on_the_port",
                VLLM + "test_a_port_that_a_healthy_server_holds",
            ),
        ),
        Case(
            80,
            "workers of a removed container hold the card",
            "a card that holds more than 2 GiB is waited for, 60 s; then the campaign ends, nothing measured",
            (
                "tests/test_cards_held.py::test_a_card_that_is_still_held_stops_the_campaign",
                "tests/test_cards_held.py::test_a_card_that_is_held_at_first_is_waited_for",
                GONE + "test_82_a_container_that_no_signal_ends",
            ),
        ),
        Case(
            81,
            "a server deaf to SIGTERM",
            "killed after the stop limit, recorded; its number stands",
            (ENGINE + "test_81_a_server_deaf_to_sigterm_is_killed_and_its_number_stands",),
        ),
        Case(
            82,
            "a container that never ends",
            "our own deadline; no further server beside it",
            (GONE + "test_82_a_container_that_no_signal_ends",),
        ),
        Case(
            83,
            "a server that exits at once",
            "its code and its whole log",
            (
                ENGINE + "test_83_a_server_that_exits_at_once",
                DOCKER + "test_a_server_that_exits_at_once_tells_its_code_and_its_whole_log",
            ),
        ),
        Case(
            84,
            "log bytes that are no lines and no characters",
            "kept as they came",
            (DOCKER + "test_log_bytes_are_kept_as_they_came",),
        ),
        Case(
            85,
            "releases that break the SDK",
            "docker>=7.1 is asked for, and every container test is its smoke test",
            (DOCKER + "test_what_runs_is_what_was_asked",),
        ),
        Case(
            86,
            "image ids of either kind",
            "id, digests and store are recorded; either pin is found",
            (DOCKER + "test_by_pin",),
        ),
        Case(87, "a used compile cache", "refused, and kept", (DOCKER + "test_an_existing_cache_is_refused_and_kept",)),
        Case(
            89,
            "/health says 200, the engine is dead",
            "no first token, no readiness; a hang is found",
            (ENGINE + "test_89_health_is_200_while_completions_hang",),
        ),
        Case(
            90,
            "Ctrl-C, SIGINT, SIGTERM, SIGHUP and kill -9 at every stage",
            "exit code 2 and one sentence; " + NOTHING_LEFT,
            (
                SIGNALS + "test_90_signal",
                SIGNALS + "test_90_a_signal_while_the_last_evidence_is_written",
                SIGNALS + "test_90_a_signal_before_the_directory_leaves_none",
                SIGNALS + "test_90_further_signals_while_it_stops_change_nothing",
                SIGNALS + "test_90_a_ladder",
            ),
        ),
    ],
}
