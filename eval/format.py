"""Formats figures for people; also the filters of report templates."""

from __future__ import annotations

import json
from typing import Any

NONE = "–"


def number(value: float | None) -> str:
    """Returns a figure with about 3 significant digits, whole numbers whole; an en dash for None."""
    if value is None:
        return NONE
    if value != value or abs(value) == float("inf"):
        return str(value)
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}".replace("-", "−")
    text = f"{value:,.1f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "−")


def fixed(value: float) -> str:
    """Returns a figure with 2 digits and a true minus."""
    return f"{value:.2f}".replace("-", "−")


def signed(value: float | None, digits: int = 2) -> str:
    """Returns a figure with its sign (a true minus), none if it rounds to 0; an en dash for None."""
    if value is None:
        return NONE
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def percent(share: float) -> str:
    """Returns a share in [0, 1] as a percentage with one digit."""
    return f"{100 * share:.1f} %"


def count(value: float | None) -> str:
    """Returns a large count at a glance: 950, 12.3 k, 4.5 M; an en dash for None."""
    if value is None:
        return NONE
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            return f"{value / min(size, 1e3 if unit == ' k' else size):.1f}{unit}"
    return f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Returns seconds as `8 s`, `12 min` or `2 h 05 min`; an en dash for None."""
    if seconds is None:
        return NONE
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def option(value: Any) -> str:
    """Returns an option's value as the command line would take it, with no quotes around words."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=list)


FILTERS = {f.__name__: f for f in (number, fixed, signed, percent, count, duration, option)}
