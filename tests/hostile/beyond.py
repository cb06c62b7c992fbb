"""What was tried beyond the list, by kind, and what no test covers."""

from tests.hostile.case import FUZZ, Case
from tests.hostile.host_cases import NOTHING_LEFT

FILES = "tests/hostile/test_files.py::"
CLOCKS = "tests/hostile/test_clocks.py::"
MEMORY = "tests/hostile/test_memory.py::"
GROWTH = "tests/hostile/test_growth.py::"
STRANGERS = "tests/hostile/test_strangers_files.py::"
CORNERS = "tests/hostile/test_corners.py::"
TAMPERING = "tests/evidence/test_tampering.py::"
ANYONE = "tests/evidence/test_directories_of_anyone.py::"
HOSTILE = "tests/commands/test_hostile_evidence.py::"
SEAL = "tests/evidence/test_seal.py::"
CLEAN = "tests/commands/test_clean.py::"
HIDDEN = "tests/test_hidden.py::"
WORKERS = "tests/wire/test_workers.py::"
DISK = "tests/e2e/test_disk_docker.py::"
TWO = "tests/e2e/test_two_campaigns_docker.py::"
ENGINE = "tests/e2e/test_engine_faults_docker.py::"
CHANGED = "tests/e2e/test_engine_changed_docker.py::"
GONE = "tests/e2e/test_engine_gone_docker.py::"
SAFETY = "tests/e2e/test_safety_docker.py::"
VLLM = "tests/e2e/test_failures_vllm.py::"


def row(title: str, expect: str, *shown: str) -> Case:
    """A case that has no number on the list."""
    return Case(0, title, expect, shown)


BEYOND: dict[str, list[Case]] = {
    "Engines and containers": [
        row(
            "a server killed in mid-stream",
            "invalid, with its end and its log; the bytes are kept",
            ENGINE + "test_49_a_server_killed_in_mid_stream",
            VLLM + "test_an_engine_killed_in_mid_stream",
        ),
        row(
            "a server that hangs, or is paused",
            "the idle timeout ends it by name",
            ENGINE + "test_49_a_server_that_hangs_in_mid_stream",
            ENGINE + "test_a_container_paused_by_somebody_else",
        ),
        row(
            "a real memory limit",
            "killed for memory, said and recorded",
            ENGINE + "test_a_server_killed_for_memory_by_its_own_limit",
            CHANGED + "test_a_process_killed_for_memory_while_its_container_lives_on",
            VLLM + "test_a_server_that_its_memory_limit_ends_while_it_loads",
        ),
        row(
            "a container started again, changed or replaced by somebody else",
            "no longer the server that was proven: invalid",
            CHANGED + "test_a_container_started_again_in_mid_prompt",
            CHANGED + "test_a_container_changed_between_two_prompts",
            CHANGED + "test_a_container_replaced_by_another_healthy_one_between_two_prompts",
        ),
        row(
            "an engine that its supervisor starts again",
            "found",
            CHANGED + "test_an_engine_that_its_supervisor_starts_again",
        ),
        row(
            "a container removed by somebody else",
            "invalid, and said",
            ENGINE + "test_a_container_removed_by_somebody_else",
        ),
        row(
            "the Docker engine dies or restarts: in mid-prompt, at a start, at a stop",
            "one sentence, nothing forgotten; when it is back, a clean-up and a resume",
            GONE + "test_an_engine_that_goes_in_mid_prompt_and_comes_back",
            GONE + "test_an_engine_that_restarts_while_a_server_starts",
            GONE + "test_an_engine_that_goes_while_it_is_asked_to_start_a_server",
            GONE + "test_an_engine_that_restarts_while_a_server_stops",
        ),
        row(
            "the Docker engine never comes back, hangs, or is away for a moment",
            "its server counts as not gone; nothing goes on beside it",
            GONE + "test_an_engine_that_never_comes_back_in_mid_prompt",
            GONE + "test_an_engine_that_never_comes_back_while_a_server_stops",
            GONE + "test_an_engine_that_hangs_for_a_while",
            GONE + "test_an_engine_away_for_a_moment_between_two_prompts",
        ),
    ],
    "Disks and directories": [
        row(
            "full in server.json, the log, the journal, evidence.json, the manifest, at the last write",
            "the file that failed is named; " + NOTHING_LEFT,
            DISK + "test_69_full_while_a_server_starts",
            DISK + "test_69_full_while_a_server_stops",
            DISK + "test_69_full_when_the_journal_goes_on",
            DISK + "test_69_full_when_evidence_is_written",
            DISK + "test_69_no_inode_left_for_the_manifest",
            DISK + "test_69_full_at_the_very_last_write",
        ),
        row(
            "full before the campaign begins",
            "nothing was started, no directory stays",
            DISK + "test_69_full_before_a_campaign_begins",
        ),
        row(
            "a log larger than the disk, a limit on the size of a file",
            "named",
            DISK + "test_69_server_that_logs_more_than_the_disk_holds",
            DISK + "test_69_limit_on_the_size_of_one_file",
        ),
        row(
            "a disk that turns read-only, a directory that is removed",
            "named; nothing is made anew in its place",
            DISK + "test_69_read_only_in_mid_campaign",
            DISK + "test_69_directory_that_somebody_removes",
        ),
        row(
            "--out that is a file, read-only, or another user's",
            "exit code 64 or 2 and one sentence",
            DISK + "test_69_out_that_can_not_be_one",
            DISK + "test_69_out_on_a_read_only_mount",
            FILES + "test_69_out_that_this_user_may_not_write",
        ),
        row(
            "report, export, seal, promote onto a full disk",
            "one sentence; the old file stays",
            FILES + "test_69_outputs_on_a_disk_that_takes_none",
            FILES + "test_69_promote_leaves_the_old_family_file_on_a_full_disk",
        ),
        row(
            "a clean-up beside a running campaign",
            "its containers stay",
            TWO + "test_70_clean_during_a_run_keeps_its_containers",
        ),
        row(
            "killed before the journal's first line",
            "said in one sentence; the clean-up takes the directory",
            CLEAN + "test_a_directory_in_which_nothing_was_recorded_goes",
        ),
    ],
    "Clocks": [
        row(
            "the wall clock is set during a stream, or set and set back",
            "the row's reason is clock-step",
            CLOCKS + "test_a_clock_that_is_set_during_a_stream_is_the_rows_reason",
            CLOCKS + "test_a_clock_that_is_set_and_set_back_within_a_stream_is_seen",
        ),
        row(
            "it is set between requests or servers",
            "no figure changes, the evidence verifies",
            CLOCKS + "test_a_clock_that_is_set_between_servers_never_passes_a_wrong_number",
            CLOCKS + "test_a_clock_that_is_set_beside_the_suite_still_verifies",
        ),
        row(
            "the kernel's own times go back after a lost segment",
            "no step; nothing is there before what precedes it",
            CORNERS + "test_what_came_behind_a_lost_segment_is_no_clock_step",
        ),
    ],
    "Tampering": [
        row(
            "any byte of any file",
            "found, and its file named",
            TAMPERING + "test_any_byte_of_any_file_of_any_recorded_campaign",
            VLLM + "test_a_flipped_byte_is_found_and_its_file_named",
        ),
        row(
            "captures swapped, attempts copied",
            "found by the cross-checks",
            TAMPERING + "test_capture_swapped_between_attempts",
            TAMPERING + "test_attempt_copied_from_another_campaign",
        ),
        row(
            "an edited capture, log or record, everything above it computed anew",
            "found by ten cross-checks; what they can't find stands in integrity.md",
            TAMPERING + "test_edited_capture_under_a_manifest_written_anew",
            TAMPERING + "test_edited_log_and_server_record",
            TAMPERING + "test_edited_ids_fail_a_gate_when_everything_else_is_computed_anew",
        ),
        row("newer and older schemas", "refused by version", ANYONE + "test_newer_and_older_schemas"),
        row(
            "bombs, links, pipes, paths that lead elsewhere, ten million rows",
            "refused in bounded memory",
            ANYONE + "test_bomb_in_a_capture",
            ANYONE + "test_bomb_in_a_json_file",
            ANYONE + "test_things_that_are_no_files",
            ANYONE + "test_attempt_directory_that_leads_elsewhere",
            ANYONE + "test_whole_campaign_needs_no_more_than_that",
        ),
        row(
            "a seal by another key, an edited statement",
            "refused",
            SEAL + "test_any_changed_byte_of_statement_or_signature_is_refused",
            SEAL + "test_key_id_of_a_key_that_did_not_sign_it",
        ),
    ],
    "Safety": [
        row(
            "planted secrets: host, launcher, image, site file, the server's log and answers",
            "in no file, page or line of the terminal",
            SAFETY + "test_no_secret_in_any_file",
            SAFETY + "test_no_secret_on_the_terminal",
            HIDDEN + "test_every_form_is_masked",
        ),
        row(
            "home paths and user names",
            "in no file and on no page",
            SAFETY + "test_no_path_of_a_person_in_any_file",
            SAFETY + "test_no_path_of_a_person_on_the_terminal",
        ),
        row(
            "what a container may do",
            "unprivileged, weights read-only, port on loopback only",
            SAFETY + "test_container_has_no_more_than_it_was_given",
            SAFETY + "test_what_a_process_within_can_do",
            SAFETY + "test_the_port_answers_on_loopback_only",
        ),
        row(
            "<script> and escape sequences in every text",
            "text",
            HOSTILE + "test_script_stays_text_in_the_report",
            SAFETY + "test_script_of_a_real_campaign_stays_text",
            HOSTILE + "test_escape_sequences_are_shown_and_not_obeyed",
        ),
        row(
            "any node of any JSON file of a campaign replaced",
            "a sentence or a result, never a traceback",
            HOSTILE + "test_any_node_of_any_json_file",
        ),
        row(
            "launchers, images, suites, sites, manifests, models, seals and logs of strangers",
            "read with limits; one sentence that names the file",
            STRANGERS + "test_what_is_no_file_of_a_sane_size",
            STRANGERS + "test_json_that_is_not_strict_or_not_ours",
            STRANGERS + "test_toml_that_is_not_ours",
            STRANGERS + "test_links_that_lead_round_in_a_circle",
        ),
    ],
    "Load": [
        row(
            "512 streams: steady, slow readers, slow servers, single bytes, all together",
            "every event accounted for, nothing grows; ten minutes of it: load.md",
            GROWTH + "test_512_streams_in_every_mode_lose_no_event_and_leave_nothing",
        ),
        row(
            "a descriptor, a thread, memory leaked each round on purpose",
            "found and named",
            GROWTH + "test_a_leak_of_each_kind_is_found",
        ),
        row(
            "passes of a ladder",
            "memory keeps a pass's rows alone; what a capture can't hold is refused before",
            GROWTH + "test_a_ladder_keeps_of_a_pass_its_rows_alone",
            "tests/workloads/test_ladder.py::test_too_many_passes_are_refused_with_the_number_that_can_be_had",
        ),
        row(
            "a client worker that dies",
            "one sentence, no hang",
            WORKERS + "test_worker_that_dies_at_its_start_is_told_although_its_requests_fill_a_pipe",
            WORKERS + "test_worker_that_dies_while_it_hands_over_is_told",
        ),
        row(
            "the longest line of anything",
            "less than 16 MB, as bytes and as values",
            MEMORY + "test_the_longest_event_of_anything",
            FUZZ + "test_an_endless_line_is_held_in_its_limit",
        ),
    ],
}
"""By kind; their titles stand in no list."""

NOT_COVERED = (
    "nothing here ran on a card: faults of a card are played by written kernel logs and file trees",
    "a kernel compiled without a line in the log, as a driver's own compiler does, or again after vLLM named it once "
    "(case 41): its time alone shows it",
    "a server's peak of running requests between two looks at /metrics (case 56): what is shown is that peak or less",
    "an id that a stream loses together with its count, without --stream-canary or in another prompt than the one that "
    "is asked again (case 18)",
    "the memory in use of a card where the harness isn't root: unknown then, and said (case 80)",
    "a clock set and set back between two reads of one stream, by less than their gap",
    "signals in the first 80 ms of the process, before its handlers stand, end it without our sentence",
    "hours of load, real networks, TLS and proxies; keyless seals against the real service",
    "a server that lies consistently, and an author who makes every file anew: see integrity.md",
)
