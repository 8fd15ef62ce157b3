"""Matplotlib figures as inline SVG that follows the page: its colours, its font, its width.

Figures are drawn in marker colours (`INK`, `BLUE`, …), which become CSS variables of the page, so that one
figure serves light and dark mode. Text stays text.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from markupsafe import Markup, escape
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from eval.report.axes import limits

INK, MUTED, LINE, PAPER = "#010101", "#010102", "#010103", "#010104"
BLUE, ORANGE, GREEN, PURPLE, TEAL, ROSE = "#010105", "#010106", "#010107", "#010108", "#010109", "#01010a"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, TEAL, ROSE)
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    LINE: "line",
    PAPER: "paper",
    BLUE: "blue",
    ORANGE: "orange",
    GREEN: "green",
    PURPLE: "purple",
    TEAL: "teal",
    ROSE: "rose",
}
# Figure metadata, a style element that would reach the whole page, comments.
_DROPPED = r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sibling",
    "text.parse_math": False,
    "font.size": 10,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": MUTED,
    "figure.facecolor": "none",
    "lines.solid_capstyle": "round",
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """Yields an empty figure of `width` × `height` inches in the page's style, independent of pyplot."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def to_svg(figure: Figure, name: str, label: str) -> Markup:
    """Returns `figure` as an inline `<svg>` element.

    Call it inside `drawing`, whose style it needs.

    Args:
        figure: The figure.
        name: Prefix that makes the element ids of this figure unique in the page.
        label: What the figure shows, for screen readers.
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(_DROPPED, "", text, flags=re.S)
    text = re.sub(r'\b(id|xlink:href)="(#?)', rf'\1="\2{name}-', text)
    text = text.replace("xlink:href", "href").replace("url(#", f"url(#{name}-")
    text = re.sub(r"(font: [^'\";]*px |font-family: )[^;\"]+", r"\1var(--font)", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    view = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    if view is None:
        raise RuntimeError("this matplotlib writes SVG without a viewBox; use 3.8 or newer")
    width = f"{float(view[1]):.0f}pt"
    opening = f'<svg role="img" aria-label="{escape(label)}" style="max-width:{width}" {view[0]}'
    text = re.sub(r"<svg .*?viewBox=\"0 0 [\d.]+ ", opening, text, count=1, flags=re.S)
    return Markup(re.sub(r"<svg ([^>]*?) xmlns[^>]*>", r"<svg \1>", text, count=1))


def sparkline(values: list[float]) -> Markup:
    """Returns a word-sized line of `values`, decorative (the table beside it says the numbers)."""
    width, height, margin = 110, 24, 3
    lo, hi = limits(values)
    across = (width - 2 * margin) / max(len(values) - 1, 1)
    up = (height - 2 * margin) / (hi - lo)
    points = [(margin + i * across, height - margin - (v - lo) * up) for i, v in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    return Markup(
        f'<svg class="spark" aria-hidden="true" viewBox="0 0 {width} {height}"><polyline points="{line}"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/></svg>'
    )
