"""Sends the learner's weights to the policy, and checks that both give the same log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agent.policy import Policy, Sampling
from agent.types import Request
from configs.errors import UserError
from rl.hand_over import hand_over
from rl.learner.forward import score_rows
from rl.learner.learner import Learner
from rl.rows.assemble import TokenRow

PROBE_TOKENS = 8


class SyncError(UserError, RuntimeError):
    """The policy does not sample from the learner's weights."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What is compared with the learner after every transfer of weights: a short response to a fixed prompt.

    Engines exist that accept new weights and go on sampling from old ones, or from a prompt's states computed
    with old ones, without a word. A fixed prompt of some blocks meets the latter.

    Attributes:
        probe: Token ids of the prompt.
        temperature: Of the run.
        tolerance: Largest |difference| of a log-probability that is let pass (nats). In float32 engines agree
            to 1e-5; bfloat16 keeps 8 bits, and other kernels round elsewhere.
    """

    probe: Sequence[int]
    temperature: float = 1.0
    tolerance: float = 1e-3


def sync(learner: Learner, policy: Policy, contract: Contract | None = None) -> dict[str, float]:
    """Hands the learner's weights to the policy, which drops every state computed with older ones.

    Args:
        learner: Source; every rank takes part in gathering its weights.
        policy: Destination; its `version` becomes the learner's.
        contract: To be checked afterwards; None: nothing is.

    Returns:
        `train/weights_changed` since the last transfer, and with a contract `sync/…`; see
        `rl.tracking.metrics.METRICS`.

    Raises:
        SyncError: the version did not arrive, or the contract is broken.
    """
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what training has freed would be in a waking generator's way
    hand_over(learner, policy)
    if policy.version != learner.version:
        raise SyncError(f"the policy reports version {policy.version} after taking version {learner.version}")
    changed = learner.handed.share()
    metrics = {} if changed is None else {"train/weights_changed": changed}
    if contract is None:
        return metrics
    gap = learner.engine.reduce([probe_gap(learner, policy, contract)], "max")[0]
    if not gap <= contract.tolerance:
        raise SyncError(
            f"the policy's log-probabilities differ from the learner's by {gap:.3g} nats after a weight sync "
            f"(limit {contract.tolerance:g}): it samples from other weights or at another temperature"
        )
    return {**metrics, "sync/logp_gap": gap}


def probe_gap(learner: Learner, policy: Policy, contract: Contract) -> float:
    """Largest |log-probability difference| between policy and learner on a response sampled here."""
    key = -1  # never a rollout's
    prompt = list(contract.probe)
    request = Request(key=key, ids=prompt, fresh=True, seed=0, max_new_tokens=PROBE_TOKENS)
    generation = policy.generate([request], Sampling(contract.temperature))[0]
    policy.release(key)
    ids = np.array([*prompt, *generation.ids], dtype=np.int32)
    row = TokenRow(ids, ((len(prompt), len(ids), 0),), np.array(generation.logps, dtype=np.float32), 0)
    # Not `learner.logps`, which deals equal rows over the ranks: each has sampled its own.
    (logps,) = score_rows(
        learner.engine.module, [row], temperature=contract.temperature, token_budget=len(ids)
    )
    return float(np.abs(logps - row.logp_sampled).max())
