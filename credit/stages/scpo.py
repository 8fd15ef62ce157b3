"""SCPO: steps of failed trajectories recover credit from a successful sibling of the same group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Formatter

import numpy as np

from configs.params import param
from credit.base import Shaper
from credit.parts.anchors import exact_anchor_groups
from credit.parts.matching import ORDERS, Matching, Rule, visiting_order
from credit.parts.siblings import PAIR_METRICS, PairScores, Sibling, rank_references, step_texts
from credit.signals import Context, Shaped, Signals, require_returns
from credit.table import StepTable


def allocate(
    M: np.ndarray,
    theta: float,
    lam: float,
    *,
    order: str = "similarity_desc",
    monotone: str = "running_max",
    pick: str = "argmax",
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Which reference position each failed step is credited at, and by how much.

    Step v, when its turn comes, is credited at a position j with M[j, v] >= theta that is still admissible:
        running_max   j > every credited position so far, in visiting order;
        chain         order-consistent with every credited (v', j'): v < v' iff j < j';
        none          any j, used before or not.
    Of several, `pick` takes the largest M[j, v] (ties: the earliest j) or the earliest j. Then
        r_v = max(0, M[j, v] - lam) / (1 - lam),    and r_v = 0 for a step that is not credited.

    This is the rule in its plainest form, for one matrix. The stage has the same done for all failed
    trajectories at once by `credit.parts.matching.Matching`; tests compare the two.

    Args:
        M: similarities, float [m, l] in [0, 1], reference positions by failed steps.
        theta: least similarity of a match.
        lam: similarity that is worth nothing, < 1; with lam > theta some matches earn 0.
        order: see `visiting_order`.
        monotone: running_max, chain or none.
        pick: argmax or earliest.
        rng: for order random.

    Returns:
        position int [l] (-1: not credited), r float [l].
    """
    position, r = np.full(M.shape[1], -1), np.zeros(M.shape[1])
    for v in visiting_order(M, order, rng):
        matches = [j for j in np.flatnonzero(M[:, v] >= theta) if _admissible(j, v, position, monotone)]
        if matches:
            j = matches[0] if pick == "earliest" else max(matches, key=lambda j: M[j, v])
            position[v], r[v] = j, recovered(M[j, v], lam)
    return position, r


def _admissible(j: int, v: int, position: np.ndarray, monotone: str) -> bool:
    """Whether step v may be credited at j, given the positions credited so far (-1: none)."""
    credited = np.flatnonzero(position >= 0)
    if monotone == "running_max":
        return all(j > position[w] for w in credited)
    if monotone == "chain":
        return all(j > position[w] if v > w else j < position[w] for w in credited)
    return True


def recovered(similarity: np.ndarray, lam: float) -> np.ndarray:
    """r = max(0, M - lam) / (1 - lam)."""
    return np.maximum(0.0, similarity - lam) / (1.0 - lam)


@dataclass(frozen=True)
class SCPO(Shaper):
    """R~_t = R_t + alpha r_t for steps t of failed trajectories, r from `allocate` and a sibling.

    arXiv 2606.25852, from its abstract and published reviews of it. In a group with both successes and
    failures the reference is the longest success; M[u, v] = f(reference step u, failed step v), f a frozen
    cross-encoder's similarity in [0, 1], over the steps that `filter` keeps. Credit is added after
    discounting, so it does not reach the steps before; the outcome term is untouched. An estimator that
    compares returns (gigpo) must follow.

    NOT RECOVERABLE from what is public (there is no code and no full text); the default, and why:
        theta, lam     0.6 and 0.5 appear as illustrations only; with lam > theta some matches would earn 0
        alpha          raw 0.5, an illustration too; it keeps the order of returns: a credited failure never
                       outranks a success at the same anchor while alpha < 10 gamma^(T-1). Against returns of
                       10 it is small, see below; `alpha_unit: success_reward` makes it a share of a success
        order          "not chronological": best similarity first had the best precision of true progress
        monotone       "beyond every credited position", read literally in visiting order; none is the paper's
                       ablation, read as: each failed step its best position, re-use allowed
        pick           argmax; in chronological order `earliest` credits far more, so say which when ablating
        filter         invalid and repeated "Nothing happens." rows: the smallest reading of "filtered"
        step_text      observation and parsed action, no thoughts, which would dominate the similarity
        max_pair_len   words, as tokens belong to the scorer
        ref_select     longest by raw length; ties by the trajectories' texts, so that ids never matter
        symmetrize     false: the reference is the query, the failed step the passage

    WHAT IS KNOWN of its size. With the shipped CPU policies, the lexical scorer (theta 0.9) and alpha 0.5,
    its advantages are almost GiGPO's. The first 6 updates of `alfworld_cpu` (seed 0, training tasks, 768
    trajectories, 16,998 steps), replayed with other alpha (`credit/scpo/effect_*`, means over updates):
        alpha                          0.5     2       5       10
        correlation with GiGPO's A     0.997   0.995   0.983   0.960
        steps whose sign turns         0.15 %  0.45 %  1.0 %   1.8 %
        credited steps with A > 0      7 %     21 %    42 %    74 %    (0 % without SCPO)
    4.2 % of the failed steps with a successful sibling are credited; 58 % of the matches are equal texts.
    Seed 1, 3 updates: correlation 0.995, 0.25 % turned, 9 % above 0 (alpha 10: 0.941, 2.4 %, 78 %). The
    first 2 updates of `webshop_cpu`: 0.998, 0.33 % turned, 26 % credited, 2 % of these above 0. So a run with
    these defaults says little about SCPO: it trains on nearly GiGPO's numbers, and a difference in success is
    hard to tell from noise. Which alpha is the better default is not measured yet.

    Credit works only through comparison at the same anchor: a credited step alone at its anchor gets nothing,
    unless `singleton_credit: raw` (not in the paper) hands alpha r to the estimator as that row's step
    advantage. Credit also lowers the relative advantage of uncredited peers, successful ones included, by
    moving their mean.
    """

    theta: float = param(0.6, "least similarity of a match; about 0.9 for the lexical scorer", low=0, high=1)
    lam: float = param(0.5, "similarity worth nothing, < 1", low=0, high=1)
    alpha: float = param(0.5, "weight of credit in the return", low=0)
    alpha_unit: str = param(
        "raw",
        "alpha in units of return, or of the reference's outcome (success_reward)",
        choices=("raw", "success_reward"),
    )
    order: str = param("similarity_desc", "visiting order of failed steps", choices=ORDERS)
    monotone: str = param(
        "running_max", "which positions stay admissible", choices=("running_max", "chain", "none")
    )
    pick: str = param("argmax", "which admissible position", choices=("argmax", "earliest"))
    filter: str = param(
        "invalid+noop",
        "rows left out of M, on both sides",
        choices=("none", "invalid", "invalid+noop", "dedup_exact"),
    )
    noop_text: str = param("Nothing happens.", "a repeated observation with this text is a no-op ('': any)")
    ref_select: str = param(
        "longest",
        "which success is the reference",
        choices=("longest", "shortest", "random", "best_similarity"),
    )
    step_text: str = param("Observation: {observation}\nAction: {action}", "text of a step; also {anchor}")
    max_pair_len: int = param(512, "words of a pair, half a side; the observation loses its beginning", low=2)
    symmetrize: bool = param(False, "score both ways round and take the mean")
    singleton_credit: str = param("zero", "credit of a step alone at its anchor", choices=("zero", "raw"))

    returns_only = True
    credited = "credit"
    requires = frozenset({"pair_scorer"})
    activity = "credited_fraction"
    metrics_doc = {
        "credited_fraction": "share of failed steps, in groups with a success, that are matched",
        "credit_mean": "mean r over matched steps",
        "credited_in_singletons": "share of matched steps alone at their exact anchor: no effect",
        "reference_length": "steps of the reference, mean over failed trajectories that have one",
        "groups_without_success": "share of groups without a success (nothing to learn from)",
        **PAIR_METRICS,
    }
    columns_doc = {
        "sibling": "trajectory whose step gave the credit, -1 without",
        "sibling_t": "t of that step, -1 without",
        "similarity": "M of the match, 0 without",
        "credit": "r, before alpha",
        "bonus": "alpha r, what the return gained",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lam >= 1:
            raise ValueError(f"credit.scpo.lam: got {self.lam}, expected < 1; r divides by 1 - lam")
        for _, name, _, _ in Formatter().parse(self.step_text):
            if name not in (None, "observation", "action", "anchor"):
                raise ValueError(
                    f"credit.scpo.step_text: unknown field {{{name}}}, "
                    "expected {observation}, {action} or {anchor}"
                )

    def shape(self, table: StepTable, signals: Signals, context: Context) -> Shaped:
        require_returns(signals, "scpo")
        families = list(self.families(table, context))
        pairs = [(reference, failed) for references, failed in families for reference in references]
        scores = PairScores(pairs, context.services["pair_scorer"], self.symmetrize)
        chosen = scores.most_alike([len(references) for references, _ in families])
        rule = Rule(self.theta, self.order, self.monotone, self.pick)
        position = Matching(scores.layout, scores, rule).run(
            chosen, lambda k: context.rng("scpo/order/" + "\n".join(pairs[k][1].texts))
        )
        allocated = [pairs[k] for k in chosen]
        columns = self._columns(table, *_matched(scores, allocated, chosen, position))
        metrics = self._metrics(table, columns, allocated) | scores.metrics()
        bonus = columns["bonus"]
        lone = signals.lone_credit + bonus if self.singleton_credit == "raw" else None
        return Shaped(returns=signals.returns + bonus, lone_credit=lone, metrics=metrics, columns=columns)

    def families(self, table: StepTable, context: Context) -> Iterator[tuple[Sequence[Sibling], Sibling]]:
        """Every failed trajectory that has a successful sibling, with the candidates for its reference."""
        kept, texts = self._kept(table), step_texts(table, self.step_text, self.max_pair_len)
        once = self.filter == "dedup_exact"
        start = table.trajectory_start
        group = table.group_index[start[:-1]]
        for members in np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1):
            won = table.success[start[:-1]][members]
            if won.all() or not won.any():
                continue
            siblings = [
                Sibling.of(np.arange(start[k], start[k + 1]), kept, texts, once=once) for k in members
            ]
            successes = [s for s, ok in zip(siblings, won, strict=True) if ok]
            references = rank_references(successes, self.ref_select, context)
            yield from ((references, s) for s, ok in zip(siblings, won, strict=True) if not ok)

    def _kept(self, table: StepTable) -> np.ndarray:
        """bool [N]: rows that take part in matching."""
        kept = np.ones(len(table), dtype=bool)
        if self.filter.startswith("invalid"):
            kept &= table.valid
        if self.filter == "invalid+noop" and len(table):
            repeated = (table.observation[1:] == table.observation[:-1]) & (table.t[1:] > 0)
            for row in np.flatnonzero(repeated) + 1:
                kept[row] &= self.noop_text not in table.observation[row]
        return kept

    def _columns(
        self, table: StepTable, rows: np.ndarray, sibling_rows: np.ndarray, similarity: np.ndarray
    ) -> dict[str, np.ndarray]:
        """What `columns_doc` lists, from the credited rows, the rows they match and M of each match."""
        columns = {
            "sibling": np.full(len(table), -1),
            "sibling_t": np.full(len(table), -1),
            "similarity": np.zeros(len(table)),
            "credit": np.zeros(len(table)),
            "bonus": np.zeros(len(table)),
        }
        r = recovered(similarity, self.lam)
        # a success worth 10 makes returns of up to 10: only with this unit is alpha a share of it
        unit = table.outcome[sibling_rows] if self.alpha_unit == "success_reward" else 1.0
        columns["sibling"][rows] = table.trajectory[sibling_rows]
        columns["sibling_t"][rows] = table.t[sibling_rows]
        columns["similarity"][rows] = similarity
        columns["credit"][rows] = r
        columns["bonus"][rows] = self.alpha * unit * r
        return columns

    @staticmethod
    def _metrics(
        table: StepTable, columns: dict[str, np.ndarray], pairs: Sequence[tuple[Sibling, Sibling]]
    ) -> dict[str, float]:
        if not len(table):
            return {}
        matched = columns["sibling_t"] >= 0
        anchor = exact_anchor_groups(table)
        alone = np.bincount(anchor)[anchor] == 1
        total = max(int(matched.sum()), 1)
        with_success = np.unique(table.group_index[table.success])
        return {
            "credited_fraction": float(matched.sum() / max(sum(failed.length for _, failed in pairs), 1)),
            "credit_mean": float(columns["credit"].sum() / total),
            "credited_in_singletons": float((matched & alone).sum() / total),
            "reference_length": float(np.mean([r.length for r, _ in pairs])) if pairs else 0.0,
            "groups_without_success": 1.0 - len(with_success) / (int(table.group_index.max()) + 1),
        }


def _matched(
    scores: PairScores,
    pairs: Sequence[tuple[Sibling, Sibling]],
    matrices: np.ndarray,
    position: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Table rows of the credited steps int [C], of the steps that credit them int [C], and M float [C].

    Args:
        scores: all similarities.
        pairs: (reference, failed) of the matrices that were allocated.
        matrices: int, their numbers in `scores.layout`.
        position: int [F, L], from `Matching.run`.
    """
    layout = scores.layout
    f, v = layout.columns(matrices)  # one entry per failed step, trajectory after trajectory
    if not len(f):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
    j = position[f, v]
    credited = j >= 0
    # the failed trajectories' rows one after another are in the order of these columns
    rows = np.concatenate([failed.rows for _, failed in pairs])[credited]
    f, v, j = f[credited], v[credited], j[credited]
    # in the references' rows one after another, those of matrix f begin at start[f]
    start = np.zeros(len(layout.heights), dtype=np.int64)
    start[matrices] = np.cumsum([0] + [len(reference.rows) for reference, _ in pairs])[:-1]
    sibling_rows = np.concatenate([reference.rows for reference, _ in pairs])[start[f] + j]
    return rows, sibling_rows, scores.read(layout.entries(f, v, j, j + 1))
