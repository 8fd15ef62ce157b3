"""What a stage changes in the end: the method's advantage compared with that of the method without it.

    with A the method's advantage, B that without the stage, over rows that vote
    correlation = Pearson's of A and B;    distance = mean |A - B|;    relative = mean |A - B| / mean |B|
    changed = share of A != B;    flips = share of A B < 0

Where one of the two is per token, tokens take the place of rows. It is measured for every optional shaper and
reweighter, by running the stages after it once more on what it was handed; nothing before it is repeated. It
is not measured where a shaper finds no returns, since then it makes them, or where a later stage asks a
service, since that would be asked (and would cost) twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from credit.base import Shaper, Stage
from credit.parts.stage_runs import Act, without
from credit.parts.token_rows import per_token, token_rows
from credit.signals import Advantage, PerToken
from credit.table import StepTable

_DOC = {
    "effect_correlation": "correlation (Pearson) over rows (tokens, where it is per token) of the advantage "
    "with this stage and without it; 1 if it changes nothing, 0 if one of the two is constant",
    "effect_distance": "mean |advantage with it − without it| over rows",
    "effect_relative": "the same over the mean |advantage without it|; left out where that is 0",
    "effect_changed": "share of rows whose advantage it changes at all",
    "effect_flips": "share of rows whose advantage is above 0 with it and below 0 without, or the other way "
    "round",
}
_CREDITED_DOC = {
    "effect_credited_positive": "share of the rows it credits (`{0}` above 0) whose advantage ends above 0",
    "effect_credited_positive_without": "share of the same rows with an advantage above 0 without it",
}


def effect_doc(stage: type[Stage]) -> dict[str, str]:
    """Name to meaning of what is reported about such a stage."""
    if not stage.optional:
        return {}
    credited = _CREDITED_DOC if stage.credited else {}
    return _DOC | {key: text.format(stage.credited) for key, text in credited.items()}


def effects(acts: Sequence[Act], table: StepTable, advantage: Advantage) -> dict[str, float]:
    """The effect of every act that can be left out, as `credit/<stage>/effect_…`.

    Args:
        acts: all that were run, in order.
        table: canonical.
        advantage: that all of them made.
    """
    if not len(table):
        return {}
    metrics = {}
    for k, act in enumerate(acts):
        if not _measurable(acts, k):
            continue
        credited = act.output.columns.get(act.stage.credited)
        found = effect(table, advantage, without(acts, k, table), None if credited is None else credited > 0)
        metrics |= {f"credit/{act.stage.name()}/{key}": value for key, value in found.items()}
    return metrics


def effect(
    table: StepTable, a: Advantage, b: Advantage, credited: np.ndarray | None = None
) -> dict[str, float]:
    """What `effect_doc` lists.

    Args:
        table: canonical, not empty.
        a: advantage with the stage.
        b: advantage without it.
        credited: bool [N], rows that the stage credits, if it credits any in particular.
    """
    votes = table.votes
    if isinstance(a, PerToken) or isinstance(b, PerToken):
        a, b = per_token(table, a), per_token(table, b)
        of_token = token_rows(table)
        votes, credited = votes[of_token], None if credited is None else credited[of_token]
    a, b, credited = a[votes], b[votes], None if credited is None else credited[votes]
    if not len(a):
        return {}
    distance, size = float(np.abs(a - b).mean()), float(np.abs(b).mean())
    found = {
        "effect_correlation": _correlation(a, b),
        "effect_distance": distance,
        "effect_changed": float(np.mean(a != b)),
        "effect_flips": float(np.mean(np.sign(a) * np.sign(b) < 0)),
    }
    if size or not distance:
        found["effect_relative"] = distance / size if size else 0.0
    if credited is not None and credited.any():
        found["effect_credited_positive"] = float(np.mean(a[credited] > 0))
        found["effect_credited_positive_without"] = float(np.mean(b[credited] > 0))
    return found


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    if np.array_equal(a, b):
        return 1.0
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    a, b = a - a.mean(), b - b.mean()
    # in units of the largest, so that no square is lost
    a, b = a / np.abs(a).max(), b / np.abs(b).max()
    return float(np.clip((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()), -1.0, 1.0))


def _measurable(acts: Sequence[Act], k: int) -> bool:
    stage = acts[k].stage
    makes_returns = isinstance(stage, Shaper) and bool(np.isnan(acts[k].before.returns).any())
    return stage.optional and not makes_returns and not any(later.stage.requires for later in acts[k + 1 :])
