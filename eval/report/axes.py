"""Limits of axes: equal values must not look different, and no share lies outside [0, 1]."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from eval.statistics import SHARE, Range

LEAST_SHARE = 0.1
"""Shares, and differences of shares, are drawn on an axis at least so long."""
_LEAST = 0.2  # of the largest value: other axes are at least so long
_MARGIN = 0.02  # beyond the range of possible values, so that a dot at its end is whole
WHOLE_SHARE = (SHARE[0] - _MARGIN, SHARE[1] + _MARGIN)
"""The axis of a success rate."""


def limits(
    values: Iterable[float | None], *, least: float | None = None, within: Range | None = None
) -> Range:
    """Returns the ends of an axis that holds `values`.

    Args:
        values: What is drawn; None and what is not finite are left out.
        least: Shortest axis (None: a fifth of the largest |value|).
        within: Range of possible values, beyond which the axis does not go (but for the margin of a dot).
    """
    drawn = [value for value in values if value is not None and isfinite(value)]
    low, high = (min(drawn), max(drawn)) if drawn else (0.0, 0.0)
    least = least or _LEAST * max(abs(low), abs(high)) or 1.0
    more = max(least - (high - low), 0.0) / 2 + 0.04 * max(high - low, least)
    low, high = low - more, high + more
    if within is None:
        return low, high
    return max(low, within[0] - _MARGIN), min(high, within[1] + _MARGIN)


def share_label(value: float, _position: object = None) -> str:
    """Returns the label of a tick on an axis of shares; none in the margin, as no share is 102 %."""
    return f"{100 * value:g}%" if SHARE[0] <= round(value, 9) <= SHARE[1] else ""
