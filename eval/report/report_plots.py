"""Which metrics reports plot over updates."""

from __future__ import annotations

from eval.report.figures import Plot
from eval.statistics import AMOUNT, SHARE

SUCCESS = "rollout/success"
PLOTS = (
    Plot("Return of a trajectory", {"rollout/return": "return"}),
    Plot("Groups with successes and failures", {"rollout/mixed_groups": "share"}, within=SHARE),
    Plot("Steps of a trajectory", {"rollout/steps": "steps"}, within=AMOUNT),
    Plot(
        "Steps by validity",
        {"rollout/well_formed": "well-formed", "rollout/admissible": "admissible", "rollout/valid": "valid"},
        within=SHARE,
    ),
    Plot("Entropy of tokens under the loss, nats", {"train/entropy": "entropy"}, within=AMOUNT),
    Plot("KL, nats per token", {"train/kl_ref": "to the reference", "train/kl_moved": "of the update"}),
    Plot("Gradient norm before clipping", {"train/grad_norm": "norm"}, within=AMOUNT),
    Plot(
        "Time of an update, s",
        {
            "time/rollout": "rollout",
            "time/learner": "learner",
            "time/eval": "evaluation",
            "time/credit": "credit",
            "time/sync": "sync",
            "time/store": "store",
        },
        stacked=True,
    ),
    Plot(
        "Speed, tokens/s",
        {"speed/rollout_tokens_per_s": "rollout", "speed/train_tokens_per_s": "learner"},
        within=AMOUNT,
    ),
)
CREDIT_PLOTS = (
    Plot("Steps credited through a sibling", {"credit/scpo/credited_fraction": "share"}, within=SHARE),
    Plot(
        "Steps without a peer",
        {
            "credit/gigpo/singleton_fraction": "at their anchor",
            "credit/hgpo/no_peer_fraction": "at any depth",
        },
        within=SHARE,
    ),
    Plot("Spread of the advantage", {"credit/advantage_std": "standard deviation"}, within=AMOUNT),
    Plot("Steps whose advantage is exactly 0", {"credit/advantage_zero_fraction": "share"}, within=SHARE),
    Plot(
        "Mean size of the parts of an advantage",
        {"credit/gigpo/episode_abs_mean": "outcome", "credit/gigpo/step_abs_mean": "step"},
        within=AMOUNT,
    ),
    Plot("Groups without a success", {"credit/scpo/groups_without_success": "share"}, within=SHARE),
)
