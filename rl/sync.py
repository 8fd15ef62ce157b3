"""Sends the learner's weights to the policy, and checks that it samples from them."""

from __future__ import annotations

import torch

from agent.fingerprints import Fingerprints, not_held
from agent.policy import Policy
from configs.errors import UserError
from rl.contract import Contract
from rl.hand_over import hand_over
from rl.learner.learner import Learner


class SyncError(UserError, RuntimeError):
    """The policy does not sample from the learner's weights."""


def sync(learner: Learner, policy: Policy, contract: Contract | None = None) -> dict[str, float]:
    """Hands the learner's weights to the policy, which drops every state computed with older ones.

    They are read back from it and compared to the bit; policies in other processes do so there.

    Args:
        learner: Source; every rank takes part in gathering its weights.
        policy: Destination; its `version` becomes the learner's.
        contract: To be checked afterwards; None: nothing is.

    Returns:
        `train/weights_changed` since the last transfer, and with a contract `sync/…`; see
        `rl.tracking.metrics.METRICS`.

    Raises:
        SyncError: the version or the weights did not arrive, or the contract is broken; on every rank.
    """
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what training has freed would be in a waking generator's way
    given = Fingerprints(policy.dtype)
    hand_over(learner, policy, given)
    if policy.version != learner.version:
        raise SyncError(f"the policy reports version {policy.version} after taking version {learner.version}")
    held = policy.held_weights()
    wrong = [] if held is None else given.differences(held)
    _agree(learner, not_held(wrong) if wrong else None)
    changed = learner.handed.share()
    metrics = {} if changed is None else {"train/weights_changed": changed}
    if contract is None:
        return metrics
    probed, fault = contract.check(learner, policy)
    if fault:
        raise SyncError(f"the policy was probed twice: {fault}")
    return {**metrics, **probed}


def _agree(learner: Learner, fault: str | None) -> None:
    """Raises what any rank has found, on all of them: one that went on would wait for the others."""
    for rank, found in enumerate(learner.ranks.gather(fault)):
        if found:
            raise SyncError(f"rank {rank}: {found}" if learner.ranks.size > 1 else found)
