"""The filters in the address of a run's trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from eval.result import EvalError

OUTCOMES = ("success", "failure")
SORTS = {
    "newest": "newest first",
    "oldest": "oldest first",
    "longest": "longest first",
    "largest": "largest |advantage|",
    "credited": "most steps credited",
    "disputed": "most disputed",
}
PAGE = 50


class BadQuery(EvalError):
    """An address that means nothing here; the message says what would."""


@dataclass(frozen=True)
class Query:
    """Which trajectories, in which order, under which methods; and which one is open.

    Attributes:
        update: Only of this update.
        group: Only of this group.
        family: Only of this family.
        outcome: `success` or `failure`.
        text: Part of the instruction, the task's id or an action.
        disputed: Only trajectories with a step to which two methods give opposite signs.
        sort: A key of `SORTS`.
        methods: Credit methods besides the recorded advantage.
        page: From 1.
        open: (update, trajectory) shown in full.
    """

    update: int | None = None
    group: int | None = None
    family: str = ""
    outcome: str = ""
    text: str = ""
    disputed: bool = False
    sort: str = "newest"
    methods: tuple[str, ...] = ()
    page: int = 1
    open: tuple[int, int] | None = None

    @classmethod
    def read(cls, parameters: Sequence[tuple[str, str]]) -> Query:
        """Reads the parameters of an address.

        Raises:
            BadQuery: a number is none, or a choice is unknown.
        """
        given: dict[str, str] = {}
        methods: list[str] = []
        for key, value in parameters:
            if key == "methods":  # either repeated, as a form sends it, or with commas, as a person writes it
                methods += [name.strip() for name in value.split(",") if name.strip()]
            elif value:
                given[key] = value
        opened = (number(given, "u"), number(given, "i"))
        return cls(
            update=number(given, "update"),
            group=number(given, "group"),
            family=given.get("family", ""),
            outcome=_choice(given, "outcome", OUTCOMES),
            text=given.get("q", ""),
            disputed="disputed" in given,
            sort=_choice(given, "sort", tuple(SORTS)) or "newest",
            methods=tuple(dict.fromkeys(methods)),
            page=max(number(given, "page") or 1, 1),
            open=None if None in opened else opened,
        )

    def link(self, **changes: object) -> str:
        """Returns the query string with some attributes changed; what is not set is left out."""
        query = replace(self, **changes)
        opened = query.open or (None, None)
        pairs = {
            "update": query.update,
            "group": query.group,
            "family": query.family,
            "outcome": query.outcome,
            "q": query.text,
            "disputed": 1 if query.disputed else None,
            "sort": query.sort if query.sort != "newest" else None,
            "methods": ",".join(query.methods),
            "page": query.page if query.page > 1 else None,
            "u": opened[0],
            "i": opened[1],
        }
        return "?" + urlencode({key: value for key, value in pairs.items() if value not in (None, "")})

    @property
    def compares(self) -> bool:
        """Whether the list itself depends on what several methods say."""
        return bool(self.methods) and (self.disputed or self.sort == "disputed")


def number(given: Mapping[str, str], key: str) -> int | None:
    """Returns a whole number of the address, None if it is not there.

    Raises:
        BadQuery: it is something else.
    """
    text = given.get(key)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise BadQuery(f"{key}={text!r} in the address is not a number: write for example {key}=12")
    return int(text)


def _choice(given: Mapping[str, str], key: str, known: Sequence[str]) -> str:
    value = given.get(key, "")
    if value and value not in known:
        raise BadQuery(f"{key}={value!r} in the address is unknown: one of {', '.join(known)}")
    return value
