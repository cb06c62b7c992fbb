"""Mutation of ``harness/wire`` and ``harness/measure``: change one thing, and see whether a test notices.

``python -m tests.mutation [MODULE…] --jobs 2 --record FILE``. Ours and no library: mutmut (3.8) leaves constants of a
module, class bodies and decorated functions alone, which is where our limits, reasons and judgements stand, and names a
mutant by a number that any edit moves; cosmic-ray (8.7) starts a pytest for each, two seconds where a fork takes 50 ms.
"""
