"""Sections A to D, which a server can play, and what holds for every case. Titles are ours, numbers the list's."""

from tests.hostile.answer_cases import ANSWER_SECTIONS
from tests.hostile.case import FUZZ, PROPERTIES
from tests.hostile.server_cases import SERVER_SECTIONS

SECTIONS = {**ANSWER_SECTIONS, **SERVER_SECTIONS}

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
