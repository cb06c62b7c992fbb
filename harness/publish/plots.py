"""Plots of evidence, each a function to one SVG string that stands in a page without anything from outside.

Every string: one ``<svg>`` element without a fixed width, its ids unique by ``prefix``, a ``<title>`` and a ``<desc>``,
everything from evidence escaped, colours by the CSS variables of ``STYLE`` with fallbacks. Same input, same bytes.
Where there is nothing to draw the string is empty.
"""

from harness.publish.plots_curves import depth_profile, mtp_depth, telemetry
from harness.publish.plots_ladder import CurveRung, ladder_curve, rungs_of_imported
from harness.publish.plots_lanes import arrivals_of_rungs, identity_map, rates_by_prompt, timeline, ttft
from harness.publish.plots_svg import STYLE

__all__ = [
    "STYLE",
    "CurveRung",
    "arrivals_of_rungs",
    "depth_profile",
    "identity_map",
    "ladder_curve",
    "mtp_depth",
    "rates_by_prompt",
    "rungs_of_imported",
    "telemetry",
    "timeline",
    "ttft",
]
