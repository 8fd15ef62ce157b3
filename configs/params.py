"""Options that a class declares itself, such as a credit stage's or a world's, checked when it is made."""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any


def param(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Iterable[str] = (),
) -> Any:
    """An option: its default, its meaning and its allowed values.

    Args:
        default: its type is the option's type.
        doc: one sentence.
        low: smallest allowed number, if any.
        high: largest allowed number, if any.
        choices: allowed words, if it takes one of a list.
    """
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "choices": tuple(choices)})


@dataclass(frozen=True)
class Checked(ABC):
    """Base of classes whose fields are made by `param`: each is checked when an instance is made.

    Raises:
        ValueError: A value of another type than the default's, out of its range or none of its choices; the
            message begins with `place()` and the option.
        TypeError: A field without `param`.
    """

    def __post_init__(self) -> None:
        for option in fields(self):
            where = f"{self.place()}.{option.name}"
            value = _checked(where, getattr(self, option.name), option.default, option.metadata)
            object.__setattr__(self, option.name, value)

    @classmethod
    @abstractmethod
    def place(cls) -> str:
        """Where the options stand in a configuration, for messages."""

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Any:
        """Makes an instance from options by name.

        Raises:
            ValueError: As the class, or there is no such option.
        """
        known = {option.name for option in fields(cls)}
        for key in options:
            if key not in known:
                hint = did_you_mean(str(key), known) if known else "; there are none"
                raise ValueError(f"{cls.place()}: no option {key!r}{hint}")
        return cls(**options)

    @classmethod
    def documented(cls) -> dict[str, tuple[Any, str]]:
        """Returns {option: (default, meaning)}."""
        return {option.name: (option.default, option.metadata["doc"]) for option in fields(cls)}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns '; did you mean …? known: …', the end of an error about an unknown name."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"{hint} known: {', '.join(known)}"


def _checked(where: str, value: Any, default: Any, rule: Mapping[str, Any]) -> Any:
    if default is MISSING or not rule:
        raise TypeError(f"{where}: declare it with param(default, doc), so that it can be checked")
    wanted = type(default)
    if wanted is float:
        value = _as_float(where, value)
    if type(value) is not wanted:
        got = f"{value!r} ({type(value).__name__})"
        raise ValueError(f"{where}: got {got}, expected {wanted.__name__} ({rule['doc']})")
    if rule["choices"] and value not in rule["choices"]:
        raise ValueError(f"{where}: got {value!r}{did_you_mean(str(value), rule['choices'])}")
    low, high = rule["low"], rule["high"]
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"[{'-inf' if low is None else low}, {'inf' if high is None else high}]"
        raise ValueError(f"{where}: got {value}, expected within {bounds} ({rule['doc']})")
    return value


def _as_float(where: str, value: Any) -> float:
    """Integers and text such as YAML's '3e-6' count as numbers; NaN and infinities do not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{where}: got {value!r} ({type(value).__name__}), expected a number")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{where}: got {value!r}, expected a number") from None
    if not math.isfinite(number):
        raise ValueError(f"{where}: got {value!r}, expected a finite number")
    return number
