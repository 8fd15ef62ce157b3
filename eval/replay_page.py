"""The page of a replay: one HTML file without scripts or network, filtered by the browser's own means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from eval.format import FILTERS
from eval.replay import Replayed
from eval.replay_input import Method
from eval.replay_view import TrajectoryView

DISAGREEMENT = (
    "the share of steps and pairs of methods with opposite signs, where a sign against 0 counts half; of "
    "equals the one whose advantages lie further apart, each method’s in units of its own root mean square"
)
ONE_METHOD = "the mean |advantage| of a trajectory"


def write_page(
    path: Path,
    replayed: Replayed,
    methods: Sequence[Method],
    *,
    title: str,
    own: str = "",
    notes: Sequence[str] = (),
) -> None:
    """Writes the page.

    Args:
        path: Where to.
        replayed: What to show.
        methods: As replayed.
        title: What was replayed.
        own: Name of the method the recording was trained with, "" if not known.
        notes: Sentences to put above everything.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    families = Counter(view.facts.family for view in replayed.shown)
    largest = _largest(replayed.shown, len(methods))
    html = environment.get_template("replay.html.j2").render(
        replayed=replayed,
        methods=methods,
        title=title,
        own=own,
        notes=notes,
        ranking=DISAGREEMENT if len(methods) > 1 else ONE_METHOD,
        families=[(f"f{i}", name or "no family", n) for i, (name, n) in enumerate(sorted(families.items()))],
        family_of={name: f"f{i}" for i, name in enumerate(sorted(families))},
        outcomes=Counter(view.success for view in replayed.shown),
        largest=largest,
        tone=lambda value, m: _tone(value, largest[m]),
        strip=lambda view, m: _strip([step.advantage[m] for step in view.steps], largest[m]),
        options=_options,
    )
    path.write_text(html, encoding="utf-8")


def _largest(views: Sequence[TrajectoryView], methods: int) -> list[float]:
    """Largest |advantage| shown of each method, 1 if all are 0: the end of its colour scale."""
    steps = [step for view in views for step in view.steps]
    return [max((abs(step.advantage[m]) for step in steps), default=0.0) or 1.0 for m in range(methods)]


def _tone(value: float, largest: float) -> Markup:
    """The colour of an advantage: blue above 0, orange below, as strong as it is large."""
    if value == 0:
        return Markup("var(--card)")
    name = "blue" if value > 0 else "orange"
    # a square root lifts small values out of the background, and the floor keeps a sign visible
    share = 8 + 62 * (abs(value) / largest) ** 0.5
    return Markup(f"color-mix(in srgb, var(--{name}) {share:.0f}%, var(--paper))")


def _strip(values: Sequence[float], largest: float) -> Markup:
    """A CSS background of one block a step."""
    stops = []
    for i, value in enumerate(values):
        start, end = 100 * i / len(values), 100 * (i + 1) / len(values)
        stops.append(f"{_tone(value, largest)} {start:.3g}% {end:.3g}%")
    return Markup(f"linear-gradient(90deg, {', '.join(stops)})")


def _options(method: Method) -> str:
    """Stages and what is set of them, as in a method file."""
    return " → ".join(_stage(name, options) for name, options in method.options.items())


def _stage(name: str, options: Mapping[str, Any]) -> str:
    inside = ", ".join(f"{key}={FILTERS['option'](value)}" for key, value in options.items())
    return f"{name}({inside})" if inside else name
