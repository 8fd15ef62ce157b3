"""In which form weights go to the policy: adapters as adapters, where the policy can hold them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from agent.fingerprints import Fingerprints
from agent.policy import Policy
from rl.learner.engine import Engine
from rl.learner.learner import Learner
from rl.learner.lora import adapter_scaling, has_adapters


def hand_over(learner: Learner, policy: Policy, given: Fingerprints) -> None:
    """Gives `policy` the learner's weights as its version; every rank takes part in gathering them.

    Adapters go beside the frozen weights they were added to, which go only when the policy has none: at
    first, and after a sleep that dropped them. A policy that cannot hold adapters gets the sums W + s·B·A,
    taken in float32 and rounded once: to bfloat16, most of a small update is lost (docs/gpu.md).

    Args:
        learner: Knows afterwards what was handed over (`Learner.handed`).
        policy: Takes it.
        given: Remembers all that the policy should hold then, the frozen weights that it has already too.
    """
    if not (policy.takes_adapters and has_adapters(learner.engine.model)):
        policy.load_weights(given.passing(learner.handed.passing(learner.named_weights())), learner.version)
        return
    engine = learner.engine
    base = given.passing(engine.base_weights())
    if policy.wants_base:
        policy.load_weights(base, learner.version)
    else:
        for _ in base:
            """They are only remembered."""
    adapters = given.passing(learner.handed.passing(_scaled(engine)))
    policy.load_adapters(adapters, learner.version)


def _scaled(engine: Engine) -> Iterator[tuple[str, torch.Tensor]]:
    """The adapters with their scaling in B: exact where it is a power of two, as alpha / r mostly is."""
    scaling = adapter_scaling(engine.model)
    for name, weight in engine.adapter_weights():
        yield name, weight * scaling if ".lora_B." in name else weight
