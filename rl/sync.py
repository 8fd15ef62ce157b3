"""Learner → policy: the weights a rollout samples with are those the learner holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent.policy import Policy, Sampling
from agent.types import Request
from rl.assemble import TokenRow
from rl.learner import Learner

PROBE_TOKENS = 8
CONTRACT_TOLERANCE = 1e-3  # nats; float32 sampler and learner agree to 1e-5


class SyncError(RuntimeError):
    """The policy does not sample from the learner's weights."""


def sync(
    learner: Learner, policy: Policy, *, probe: Sequence[int] = (), temperature: float = 1.0
) -> float | None:
    """Hands the learner's weights to the policy, which drops every state computed with older ones.

    Args:
        learner: Source.
        policy: Destination; its `version` becomes the learner's.
        probe: Prompt token ids. If given, the policy samples a short response to it, and its
            log-probabilities are compared with the learner's: engines exist that accept new weights
            and go on sampling from old ones without a word.
        temperature: The run's sampling temperature, for the probe.

    Returns:
        Largest |difference| of the probe's log-probabilities, None without a probe.

    Raises:
        SyncError: the version did not arrive, or the probe differs by more than 1e-3 nats.
    """
    policy.load_weights(learner.named_weights(), learner.version)
    if policy.version != learner.version:
        raise SyncError(f"the policy reports version {policy.version} after taking version {learner.version}")
    if not len(probe):
        return None
    gap = probe_gap(learner, policy, probe, temperature=temperature)
    if not gap <= CONTRACT_TOLERANCE:
        raise SyncError(
            f"the policy's log-probabilities differ from the learner's by {gap:.3g} nats after a weight sync "
            f"(limit {CONTRACT_TOLERANCE:g}): it samples from other weights or at another temperature"
        )
    return gap


def probe_gap(learner: Learner, policy: Policy, probe: Sequence[int], *, temperature: float) -> float:
    """Largest |log-probability difference| between policy and learner on a sampled response to `probe`."""
    key = -1  # never a rollout's
    request = Request(key=key, ids=list(probe), fresh=True, seed=0, max_new_tokens=PROBE_TOKENS)
    generation = policy.generate([request], Sampling(temperature))[0]
    policy.release(key)
    ids = np.array([*probe, *generation.ids], dtype=np.int32)
    row = TokenRow(ids, ((len(probe), len(ids), 0),), np.array(generation.logps, dtype=np.float32), 0)
    return float(np.abs(learner.logps([row])[0] - row.logp_sampled).max())
