"""GiGPO: the outcome inside the group, and the step's return among steps at the same anchor."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from configs.params import param
from credit.base import Estimator
from credit.signals import Context, Estimated, Signals, require_returns
from credit.stages.grpo import GROUP_METRICS, GRPO, UNITS
from credit.statistics import codes, normalise, normalise_float32, peer_ids, votes_of
from credit.table import StepTable


def exact_anchor_groups(table: StepTable) -> np.ndarray:
    """int [N]: rows of one group with equal anchors, across trajectories and across time within one."""
    return peer_ids(table.group_index, codes(table.anchor))


def similar_anchor_groups(table: StepTable, threshold: float) -> np.ndarray:
    """int [N]: greedy clusters of a group's anchors by character similarity, see `similar_texts`."""
    founder = similar_texts(table.group_index, table.anchor, table.t, threshold)
    return peer_ids(table.group_index, founder)


def similar_texts(group: np.ndarray, text: np.ndarray, t: np.ndarray, threshold: float) -> np.ndarray:
    """int [M]: the founder of each text's cluster; equal in one group means the same cluster.

    Distinct texts of a group are visited by (earliest step seen, text); each joins the first cluster whose
    first member f has SequenceMatcher(f, text).ratio() >= threshold, else it founds one. The public code
    visits rows as they come; this order depends on neither row order nor ids.

    Args:
        group: int [M].
        text: str [M].
        t: int [M], at which step the text was seen.
        threshold: least similarity, in [0, 1].
    """
    code = codes(text)
    text_of = dict(zip(code.tolist(), text, strict=True))
    cluster = np.empty(len(code), dtype=np.int64)
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        earliest: dict[int, int] = {}
        for c, seen in zip(code[rows].tolist(), t[rows].tolist(), strict=True):
            earliest[c] = min(seen, earliest.get(c, seen))
        founders: list[int] = []
        joined: dict[int, int] = {}
        for c in sorted(earliest, key=lambda c: (earliest[c], text_of[c])):
            founder = next((f for f in founders if _similar(text_of[f], text_of[c], threshold)), c)
            if founder == c:
                founders.append(c)
            joined[c] = founder
        cluster[rows] = [joined[c] for c in code[rows].tolist()]
    return cluster


def _similar(a: str, b: str, threshold: float) -> bool:
    matcher = SequenceMatcher(None, a, b)
    # the first two are cheap upper bounds of the third
    return (
        matcher.real_quick_ratio() >= threshold
        and matcher.quick_ratio() >= threshold
        and matcher.ratio() >= threshold
    )


@dataclass(frozen=True)
class GiGPO(Estimator):
    """A_i = A^E_i + omega A^S_i,  A^S_i = (R_i - mean_a) / (std_a + eps) over anchor group a of row i.

    arXiv 2505.10978, sections 4.1-4.3. A^E is GRPO's advantage with the same `norm`, `unit` and `lone`; R is
    the step's return (`returns` stage); an anchor group is the rows of one group with the same anchor; a row
    alone at its anchor has A^S = 0 (or `lone_credit` where an earlier stage set one). `norm: mean` drops both
    divisions.

    Departures from the public code (verl-agent): those of `grpo` for A^E; the anchor is whatever key the
    table carries, not always raw observation text; `anchors: similarity` visits anchors in an order of its
    own.
    """

    norm: str = param(
        "mean_std", "divide by the standard deviation or not, in both terms", choices=("mean_std", "mean")
    )
    omega: float = param(1.0, "weight of the step term", low=0)
    anchors: str = param("exact", "which anchors are the same", choices=("exact", "similarity"))
    similarity: float = param(0.95, "least character similarity, for anchors: similarity", low=0, high=1)
    unit: str = param("trajectories", "as in grpo, for the outcome term", choices=UNITS)
    lone: str = param("zero", "as in grpo, for the outcome term", choices=("zero", "raw"))
    eps: float = param(1e-6, "added to both standard deviations", low=0)
    fp32_reference_compat: bool = param(
        False, "float32 statistics as in the public code, spurious ties included"
    )

    compares_returns = True
    activity = "step_abs_mean"
    metrics_doc = {
        **GROUP_METRICS,
        "singleton_fraction": "share of rows alone at their anchor (no step signal)",
        "anchor_size_mean": "rows an anchor group, mean over anchor groups",
        "episode_abs_mean": "mean |A^E| over rows",
        "step_abs_mean": "mean |omega A^S| over rows",
    }
    columns_doc = {
        "episode": "A^E",
        "step": "A^S, before omega",
        "anchor_group": "number of the row's anchor group",
        "anchor_size": "rows in the row's anchor group that vote",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        GRPO.like(self)  # raises where options exclude each other

    def estimate(self, table: StepTable, signals: Signals, context: Context) -> Estimated:
        require_returns(signals, "gigpo")
        outcome = GRPO.like(self).estimate(table, signals, context)
        anchor = (
            exact_anchor_groups(table)
            if self.anchors == "exact"
            else similar_anchor_groups(table, self.similarity)
        )
        function = normalise_float32 if self.fp32_reference_compat else normalise
        step = function(
            signals.returns,
            anchor,
            table.votes.astype(np.float64),
            ddof=1 if self.norm == "mean_std" else None,
            eps=self.eps,
        )
        size = votes_of(anchor, table.votes)
        step = np.where(size[anchor] == 1, signals.lone_credit, step)
        step = np.where(table.votes, step, 0.0)
        metrics = dict(outcome.metrics)
        if len(table):
            metrics |= {
                "singleton_fraction": float(np.mean(size[anchor] == 1)),
                "anchor_size_mean": float(size.mean()),
                "episode_abs_mean": float(np.abs(outcome.advantage).mean()),
                "step_abs_mean": float(np.abs(self.omega * step).mean()),
            }
        columns = {
            "episode": outcome.advantage,
            "step": step,
            "anchor_group": anchor,
            "anchor_size": size[anchor],
        }
        return Estimated(outcome.advantage + self.omega * step, metrics, columns)
