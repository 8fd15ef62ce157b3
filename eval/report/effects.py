"""What each stage of a run's credit method changed in the advantage (`credit.parts.effect`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval.format import percent

_MARK = "/effect_correlation"


@dataclass(frozen=True, slots=True)
class Effect:
    """A stage's effect, each figure its mean over the updates that report it.

    Attributes:
        stage: Name of the stage.
        correlation: Of the advantage with the stage and without.
        relative: Mean |difference| over mean |advantage without it|; None if that was always 0.
        changed: Share of steps whose advantage it changes.
        flips: Share of steps whose advantage it turns round.
        credited_positive: Share of the steps it credits that end above 0; None if it credits none.
        credited_positive_without: Share of the same steps above 0 without it.
    """

    stage: str
    correlation: float
    relative: float | None
    changed: float
    flips: float
    credited_positive: float | None = None
    credited_positive_without: float | None = None

    def __str__(self) -> str:
        """Returns it in a line, for tables and the terminal."""
        parts = [f"correlation {self.correlation:.3f}", f"signs turned {self.turned}"]
        if self.credited_positive is not None:
            parts.append(f"credited steps with A > 0 {percent(self.credited_positive)}")
        return f"{self.stage}: {', '.join(parts)}"

    @property
    def turned(self) -> str:
        """Returns the flips in per cent with two digits: they are few."""
        return f"{100 * self.flips:.2f} %"


def effects(records: Sequence[Mapping[str, float]]) -> list[Effect]:
    """Returns the effect of every stage that the records report one of, by name.

    Args:
        records: Metrics, one mapping per update.
    """
    names = {name for record in records for name in record if name.endswith(_MARK)}
    return [_effect(name.removesuffix(_MARK), records) for name in sorted(names)]


def _effect(prefix: str, records: Sequence[Mapping[str, float]]) -> Effect:
    def mean(key: str) -> float | None:
        name = f"{prefix}/effect_{key}"
        return _mean(record[name] for record in records if name in record)

    return Effect(
        prefix.rpartition("/")[2],
        mean("correlation"),
        mean("relative"),
        mean("changed"),
        mean("flips"),
        mean("credited_positive"),
        mean("credited_positive_without"),
    )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None
