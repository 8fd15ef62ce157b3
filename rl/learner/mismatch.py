"""Sampler against learner before an update: how far apart they are, and which responses are too far.

Both have the same weights (the sampler those of one update before, with `rollout.staleness`), yet other
kernels, other batch shapes and another number format give other log-probabilities. What the loss does about
it is `rl.learner.loss.LossOptions.mismatch`; with `off` it is only measured, at the first optimiser step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl.learner.kl import MAX_LOG_RATIO
from rl.learner.loss import LossOptions
from rl.rows.assemble import TokenRow

# exp of more is no finite float32, and says no more.
MAX_REPORTED_LOG_RATIO = 80.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """The rows of an update as the loss's `mismatch` leaves them.

    Attributes:
        rows: To train on.
        logp_old: For each, the learner's log-probabilities before the update; None: the loss needs none.
        metrics: `train/mismatch_…`, if the rows were scored.
    """

    rows: Sequence[TokenRow]
    logp_old: list[np.ndarray] | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def prepare(
    rows: Sequence[TokenRow],
    options: LossOptions,
    score: Callable[[Sequence[TokenRow]], list[np.ndarray]],
) -> Prepared:
    """Scores the rows of an update with the learner, unless `options.mismatch` is `off`, and acts on it.

        off         nothing
        mask        leaves responses out, see `without_mismatched`
        recompute   keeps the scores as the ratio's denominator, in all optimiser steps; what the sampler
                    computed differently is not corrected (the public code, verl-agent)
        tis         the same, with a weight that corrects it, see `rl.learner.loss.truncated_weight`

    Args:
        rows: From `rl.rows.assemble.token_rows`.
        options: Of the run.
        score: The learner's log-probabilities before the update.
    """
    if options.mismatch == "off":
        return Prepared(rows)
    logp_old = score(rows)
    metrics = mismatch_metrics(rows, logp_old)
    if options.mismatch == "mask":
        rows, metrics["train/mismatch_masked"] = without_mismatched(rows, logp_old, options.mismatch_cap)
        return Prepared(rows, None, metrics)
    if options.mismatch == "tis":
        metrics["train/mismatch_capped"] = capped_share(rows, logp_old, options.mismatch_cap)
    return Prepared(rows, logp_old, metrics)


def mismatch_metrics(rows: Sequence[TokenRow], logp_old: Sequence[np.ndarray]) -> dict[str, float]:
    """Measures over every span token of `rows`.

        train/mismatch_mean       mean |d|,  d = logp_old − logp_sampled
        train/mismatch_kl         mean of exp(d) − d − 1, which estimates KL(sampler ‖ learner), as the
                                  sampler drew the tokens (k3 of Schulman 2020, "Approximating KL")
        train/mismatch_ratio_max  exp(max |d|)

    Args:
        rows: Of an update.
        logp_old: For each, the learner's log-probabilities before it, laid out like `logp_sampled`.

    Returns:
        Nothing without tokens.
    """
    sampled = [row.logp_sampled for row in rows]
    if not sum(map(len, sampled)):
        return {}
    d = np.concatenate(logp_old).astype(np.float64) - np.concatenate(sampled)
    limited = d.clip(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        "train/mismatch_mean": float(np.abs(d).mean()),
        "train/mismatch_kl": float((np.exp(limited) - limited - 1.0).mean()),
        "train/mismatch_ratio_max": math.exp(min(float(np.abs(d).max()), MAX_REPORTED_LOG_RATIO)),
    }


def capped_share(rows: Sequence[TokenRow], logp_old: Sequence[np.ndarray], cap: float) -> float:
    """Share of the tokens whose weight `rl.learner.loss.truncated_weight` cuts."""
    pairs = zip(rows, logp_old, strict=True)
    cut = sum(int((old - row.logp_sampled > math.log(cap)).sum()) for row, old in pairs)
    return cut / max(1, sum(len(row.logp_sampled) for row in rows))


def without_mismatched(
    rows: Sequence[TokenRow], logp_old: Sequence[np.ndarray], cap: float
) -> tuple[list[TokenRow], float]:
    """Leaves responses out of the loss whose sampler and learner disagree too much.

    A response with a token for which π_learner / π_sampled is above `cap` or below 1 / `cap` loses all its
    spans: it stays in the row as context and is counted by no normaliser, as if it had been cut by length
    (`train.mask_truncated`). So the gradient is that of the update without these responses, not a smaller
    one: what is left weighs more. KL, entropy and auxiliary terms of these responses go with them.

    Sources: sequences with a token that is far off are left out in verl ("token veto", with the denominator
    corrected likewise); sequence-level masking by the product of the ratios is Liu et al. 2025, "When Speed
    Kills Stability", and TRL's `sequence_mask`. Departures: a sequence is one step's response, not a
    trajectory; it is judged by its worst token, both ways, not by a product, which grows with length.

    Args:
        rows: Of an update.
        logp_old: For each, the learner's log-probabilities before it.
        cap: The factor, > 1.

    Returns:
        The rows that have a span left, and the share of responses left out.
    """
    limit = math.log(cap)
    kept: list[TokenRow] = []
    responses = dropped = 0
    for row, old in zip(rows, logp_old, strict=True):
        far = np.abs(old - row.logp_sampled) > limit
        ends = np.cumsum([end - start for start, end, _ in row.spans])
        pieces = np.split(far, ends[:-1])
        bad = {span[2] for span, piece in zip(row.spans, pieces, strict=True) if piece.any()}
        responses += len({span[2] for span in row.spans})
        dropped += len(bad)
        spans = tuple(span for span in row.spans if span[2] not in bad)
        if spans:
            good = np.repeat([span[2] not in bad for span in row.spans], np.diff(ends, prepend=0))
            kept.append(replace(row, spans=spans, logp_sampled=row.logp_sampled[good]) if bad else row)
    return kept, dropped / max(1, responses)
