"""A hostile case, and the files of the tests that show them."""

from typing import NamedTuple


class Case(NamedTuple):
    """One case of the list."""

    number: int
    title: str
    expect: str
    """what the harness does; ``open: …`` where a part of it isn't built"""
    shown: tuple[str, ...]
    """tests, each ``file::function``"""


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
