"""Which metrics reports plot over updates."""

from __future__ import annotations

from eval.figures import Panel

SUCCESS = "rollout/success"
PANELS = (
    Panel("Return of a trajectory", {"rollout/return": "return"}),
    Panel("Groups with successes and failures", {"rollout/mixed_groups": "share"}, share=True),
    Panel("Steps of a trajectory", {"rollout/steps": "steps"}),
    Panel(
        "Steps by validity",
        {"rollout/well_formed": "well-formed", "rollout/admissible": "admissible", "rollout/valid": "valid"},
        share=True,
    ),
    Panel("Entropy of tokens under the loss, nats", {"train/entropy": "entropy"}),
    Panel("KL, nats a token", {"train/kl_ref": "to the reference", "train/kl_moved": "of the update"}),
    Panel("Gradient norm before clipping", {"train/grad_norm": "norm"}),
    Panel(
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
    Panel(
        "Speed, tokens/s",
        {"speed/rollout_tokens_per_s": "rollout", "speed/train_tokens_per_s": "learner"},
    ),
)
CREDIT_PANELS = (
    Panel("Steps credited through a sibling", {"credit/scpo/credited_fraction": "share"}, share=True),
    Panel(
        "Steps without a peer",
        {
            "credit/gigpo/singleton_fraction": "at their anchor",
            "credit/hgpo/no_peer_fraction": "at any depth",
        },
        share=True,
    ),
    Panel("Spread of the advantage", {"credit/advantage_std": "standard deviation"}),
    Panel("Steps whose advantage is exactly 0", {"credit/advantage_zero_fraction": "share"}, share=True),
    Panel(
        "Mean size of the parts of an advantage",
        {"credit/gigpo/episode_abs_mean": "outcome", "credit/gigpo/step_abs_mean": "step"},
    ),
    Panel("Groups without a success", {"credit/scpo/groups_without_success": "share"}, share=True),
)
