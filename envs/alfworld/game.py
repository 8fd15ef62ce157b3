"""One ALFWorld game, and the texts packaged with alfworld."""

from __future__ import annotations

import hashlib
import importlib.util
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from envs.base import EnvError

GOAL_MARK = "UNKNOWN GOAL"
FAMILIES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)


class DataError(EnvError):
    """Game data is missing, broken or incomplete."""


class _Packed:
    """A text field kept compressed: a problem has 40 kB of text, 4 kB compressed, and a set has thousands."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = f"_packed_{name}"

    def __get__(self, instance: Any, owner: type) -> str:
        if instance is None:
            raise AttributeError(self._key)  # Tells dataclass that the field has no default.
        return zlib.decompress(instance.__dict__[self._key]).decode()

    def __set__(self, instance: Any, value: str) -> None:
        instance.__dict__[self._key] = zlib.compress(value.encode(), 1)


@dataclass(frozen=True, eq=False, repr=False)
class Game:
    """One ALFWorld game; a `Task` of `envs.base`.

    Attributes:
        id: Unique name, stable between runs.
        family: One of `FAMILIES`.
        split: `train`, `valid_seen`, `valid_unseen` or a name of your own.
        goal: The task sentence without its full stop ("put a clean mug in cabinet").
        pddl_problem: The problem in PDDL.
        pddl_domain: The domain in PDDL; None for the one packaged with alfworld.
        grammar: The text grammar, `UNKNOWN GOAL` where the sentence goes; None for the packaged one.
        pddl_params: ALFRED's task parameters (`object_target`, `parent_target`, …).
    """

    id: str
    family: str
    split: str
    goal: str
    pddl_problem: str = _Packed()  # type: ignore[assignment]
    pddl_domain: str | None = None
    grammar: str | None = None
    pddl_params: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> bytes:
        """Hash of all that decides how the game plays, the same for a game that brings the packaged texts.

        Raises:
            DataError: it needs the packaged texts, and they are not there.
        """
        domain, grammar = self.pddl_domain, self.grammar
        parts = (
            self.goal.encode(),
            self.pddl_problem.encode(),
            _text_digest(packaged_text("alfred.pddl") if domain is None else domain),
            _text_digest(packaged_text("alfred.twl2") if grammar is None else grammar),
        )
        return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()

    def texts(self) -> dict[str, str | None]:
        """What a server needs of the game besides its name, family and split (`task_book.content`)."""
        return {
            "goal": self.goal,
            "pddl_problem": self.pddl_problem,
            "pddl_domain": self.pddl_domain,
            "grammar": self.grammar,
        }

    def __repr__(self) -> str:
        return f"Game(id={self.id!r}, split={self.split!r}, goal={self.goal!r})"


@lru_cache(maxsize=64)
def _text_digest(text: str) -> bytes:
    """Digest of a text that thousands of games share."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


@lru_cache(maxsize=4)
def packaged_text(name: str) -> str:
    """Returns `alfred.pddl` or `alfred.twl2` of the installed alfworld package, without importing it.

    Raises:
        DataError: the package or the file is not there.
    """
    spec = importlib.util.find_spec("alfworld")
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        path = Path(place) / "data" / name
        if path.is_file():
            return path.read_text()
    state = f"has no data/{name}" if places else "is not installed"
    raise DataError(
        f"The alfworld package {state}; games without a domain of their own need it. Run `make setup`."
    )
