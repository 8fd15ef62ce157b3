"""How far an update moved the policy: KL(before ‖ after), measured on a few of the rows it trained on.

With one optimiser step per update, nothing that the training passes compute can show it: they all have the
weights of before. So some rows are scored before the first step and again after the last one, in the same
batches, so that kernels that round otherwise in other shapes add nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl.learner.kl import k3
from rl.rows.assemble import TokenRow

SHARE = 64
"""One in so many tokens is scored, twice: about 1 % of what forward and backward over all of them cost."""


def watched_rows(rows: Sequence[TokenRow], most: int) -> list[TokenRow]:
    """Evenly spaced rows with about 1 / `SHARE` of the tokens, at most about `most`, but always one."""
    total = sum(len(row.ids) for row in rows)
    if not total:
        return []
    count = max(1, min(total // SHARE, most) * len(rows) // total)
    return [rows[i * len(rows) // count] for i in range(count)]


def kl_moved(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """k3 estimate of KL(before ‖ after) from tokens that a policy near `before` drew (Schulman 2020).

        mean of exp(d) − d − 1,    d = logp_after − logp_before

    Args:
        before: Log-probabilities of each row's tokens before the update.
        after: The same after it.
    """
    return float(k3(np.concatenate(after).astype(np.float64) - np.concatenate(before)).mean())
