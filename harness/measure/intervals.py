"""Bounds on a divergence rate (contract section 5)."""

CONFIDENCE = 0.95


def divergence_upper_bound(misses: int, total: int, confidence: float = CONFIDENCE) -> float:
    """One-sided Clopper-Pearson upper bound of a rate of ``misses`` in ``total`` requests, from 0 to 1.

    0 of 64 only bounds the rate below 4.57 %, 0 of 1280 below 0.234 %, 35 of 1280 below 3.61 %. Raises ValueError for
    counts that can't be.
    """
    if total <= 0 or not 0 <= misses <= total:
        raise ValueError(f"{misses} of {total} is no count of divergent requests")
    if misses == total:
        return 1.0
    # Late and from scipy.special: scipy.stats has the same function and takes a second to import.
    from scipy.special import betaincinv

    return float(betaincinv(misses + 1, total - misses, confidence))
