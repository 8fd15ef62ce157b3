"""Colours for advantages: blue above 0, orange below, stronger with their size."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup


def colour_of(value: float, largest: float) -> Markup:
    """Returns the CSS colour of an advantage on a scale that ends at ±`largest`."""
    if value == 0:
        return Markup("var(--card)")
    name = "blue" if value > 0 else "orange"
    # a square root lifts small values out of the background, and the floor keeps a sign visible
    share = 8 + 62 * min(abs(value) / largest, 1.0) ** 0.5
    return Markup(f"color-mix(in srgb, var(--{name}) calc({share:.0f}% * var(--depth)), var(--paper))")


def strip(values: Sequence[float], largest: float) -> Markup:
    """Returns a CSS background of one block per step."""
    stops = []
    for i, value in enumerate(values):
        start, end = 100 * i / len(values), 100 * (i + 1) / len(values)
        stops.append(f"{colour_of(value, largest)} {start:.3g}% {end:.3g}%")
    return Markup(f"linear-gradient(90deg, {', '.join(stops)})")
