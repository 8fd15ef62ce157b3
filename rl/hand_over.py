"""In which form weights go to the policy: adapters as adapters, where the policy can hold them."""

from __future__ import annotations

from agent.policy import Policy
from rl.learner.learner import Learner
from rl.learner.lora import adapter_scaling, has_adapters


def hand_over(learner: Learner, policy: Policy) -> None:
    """Gives `policy` the learner's weights as its version; every rank takes part in gathering them.

    Adapters go beside the frozen weights they were added to, which go only when the policy has none: at
    first, and after a sleep that dropped them. A policy that cannot hold adapters gets the sums W + s·B·A,
    taken in float32 and rounded once: to bfloat16, most of a small update is lost (docs/gpu.md).

    What was handed over is known to `learner.handed` afterwards.
    """
    engine = learner.engine
    if not (policy.takes_adapters and has_adapters(engine.model)):
        policy.load_weights(learner.handed.passing(learner.named_weights()), learner.version)
        return
    if policy.wants_base:
        policy.load_weights(engine.base_weights(), learner.version)
    policy.load_adapters(
        learner.handed.passing(engine.adapter_weights()), adapter_scaling(engine.model), learner.version
    )
