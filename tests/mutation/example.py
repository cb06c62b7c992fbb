"""Something to mutate: ``test_example.py`` sees every mutant but that of LIMIT, and one never ends."""

LIMIT = 10


def total(limit: int = LIMIT) -> int:
    """1 + 2 + … + limit."""
    count = found = 0
    while count < limit:
        count += 1
        found += count
    return found
