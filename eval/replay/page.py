"""The page of a replay: one HTML file without scripts or network, filtered by the browser's own means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.format import FILTERS
from eval.replay.recorded import Method
from eval.replay.replay import Replayed
from eval.replay.shown import ShownTrajectory
from eval.report.advantage_colours import colour_of, strip
from eval.report.templating import environment

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
    families = Counter(view.facts.family for view in replayed.shown)
    largest = _largest(replayed.shown, len(methods))
    html = (
        environment()
        .get_template("replay.html.j2")
        .render(
            replayed=replayed,
            methods=methods,
            title=title,
            own=own,
            notes=notes,
            ranking=DISAGREEMENT if len(methods) > 1 else ONE_METHOD,
            families=[
                (f"f{i}", name or "no family", n) for i, (name, n) in enumerate(sorted(families.items()))
            ],
            family_of={name: f"f{i}" for i, name in enumerate(sorted(families))},
            outcomes=Counter(view.success for view in replayed.shown),
            largest=largest,
            colour_of=lambda value, m: colour_of(value, largest[m]),
            strip=lambda view, m: strip([step.advantage[m] for step in view.steps], largest[m]),
            options=_options,
        )
    )
    path.write_text(html, encoding="utf-8")


def _largest(views: Sequence[ShownTrajectory], methods: int) -> list[float]:
    """Largest |advantage| shown of each method, 1 if all are 0: the end of its colour scale."""
    steps = [step for view in views for step in view.steps]
    return [max((abs(step.advantage[m]) for step in steps), default=0.0) or 1.0 for m in range(methods)]


def _options(method: Method) -> str:
    """Stages and what is set of them, as in a method file."""
    return " → ".join(_stage(name, options) for name, options in method.options.items())


def _stage(name: str, options: Mapping[str, Any]) -> str:
    inside = ", ".join(f"{key}={FILTERS['option'](value)}" for key, value in options.items())
    return f"{name}({inside})" if inside else name
