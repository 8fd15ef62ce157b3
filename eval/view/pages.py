"""The viewer's pages: templates with escaping on, and what every one of them knows."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval.format import duration
from eval.report.advantage_colours import colour_of, strip
from eval.report.svg import sparkline
from eval.report.templating import environment
from eval.view.query import SORTS

HERE = Path(__file__).parent


class Pages:
    """Renders templates of `eval/view/templates`."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._environment = environment(HERE / "templates")
        self._environment.filters |= {"ago": lambda then: _ago(clock() - then), "visible": _visible}
        self._environment.globals |= {
            "colour_of": colour_of,
            "strip": strip,
            "spark": sparkline,
            "sorts": SORTS,
        }

    def __call__(self, template: str, **values: Any) -> str:
        """Returns a page's HTML."""
        return self._environment.get_template(template).render(**values)


def _ago(seconds: float) -> str:
    if seconds < 10:
        return "just now"
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.0f} days ago"
    return f"{duration(seconds)} ago"


def _visible(text: str) -> Markup:
    """Escapes a token and shows its line breaks; spaces are kept by the style sheet."""
    return Markup("{}").format(text.replace("\n", "↵\n"))
