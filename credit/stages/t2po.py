"""T2PO: a step that says nothing new is answered again, and thinking ends where it has settled."""

from __future__ import annotations

from dataclasses import dataclass

from configs.params import param
from credit.base import Steer
from credit.parts import t2po_rules as rules


@dataclass(frozen=True)
class T2PO(Steer):
    """Answer again iff 0 < |Phi^k - Phi^(k-1)| < eta, Phi^k = exp(mean_t log M_t) over the tokens of step k.

    arXiv 2605.02178; M, Phi and both rules are in `credit.parts.t2po_rules`, the rollout's side in
    `agent.steering.t2po`. No credit: the base is GiGPO. The scales of M are those of the trajectory so far,
    since a step is judged while later ones are not known. The response that is kept is the last one made, and
    only it counts.

    Where the thought of a response has settled (`stop_thinking`), the rest of it is cut off, `</think>` is
    put in, and the policy goes on from there, once per response. It is the distribution of stopping while
    sampling, since the rule sees no more than the tokens before. What was put in was not sampled and carries
    no loss.

    NOT RECOVERABLE: how the public code makes the turn score, and the constants but eta and max_try. The
    defaults are guesses at the size that the description suggests. `min_prefix` is meant for thoughts of
    hundreds of tokens: shorter ones are never stopped by it.
    """

    eta: float = param(rules.ETA, "change of the score below which a step is answered again", low=0)
    max_try: int = param(rules.MAX_TRY, "times a step is answered again at most", low=0)
    alpha: float = param(rules.ALPHA, "share of the entropy in the signal M", low=0, high=1)
    top: int = param(rules.TOP, "candidates of a token that its confidence looks at", low=1)
    window: int = param(rules.WINDOW, "tokens over which the signal must have settled", low=1)
    epsilon: float = param(rules.EPSILON, "mean change of the signal that counts as settled", low=0)
    min_prefix: int = param(rules.MIN_PREFIX, "tokens before thinking may be stopped", low=1)
