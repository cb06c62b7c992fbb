"""``python -m harness``: the ``bench`` command where its script isn't on PATH."""

from harness.cli import main

main()
