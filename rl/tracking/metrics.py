"""Every metric a run logs: its unit and meaning, once; and the ones a rollout gives.

`docs/metrics.md` is written from this table by `render_table`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from agent.rollout.groups import RolloutCounts
from agent.types import Group
from credit.pipeline import METRICS as CREDIT_METRICS
from rl.rows.privileged import PRIVILEGED

_PROBED = ("logp_sampled", "entropy", "logp_ref", "logp_peer", "logp_hindsight", "continuations")

METRICS: dict[str, tuple[str, str]] = {
    "rollout/success": ("share", "trajectories that solved their task"),
    "rollout/success/*": ("share", "the same within one task family"),
    "rollout/score": ("0–1", "mean task score of a trajectory"),
    "rollout/return": ("env reward", "mean sum of a trajectory's unscaled rewards"),
    "rollout/mixed_groups": ("share", "groups with successes and failures: those with an outcome signal"),
    "rollout/flat_groups": (
        "share",
        "groups whose trajectories all have the same return: their outcomes give no gradient",
    ),
    "rollout/steps": ("steps", "mean length of a trajectory"),
    "rollout/truncated": ("share", "trajectories ended by the step limit"),
    "rollout/well_formed": ("share", "steps whose response has the required tags in order (`prompt.parse`)"),
    "rollout/admissible": ("share", "steps whose action is in the environment's list"),
    "rollout/valid": (
        "share",
        "steps that are both (`prompt.parse: papers`: well-formed)",
    ),
    "rollout/cut_responses": ("share", "responses cut by length"),
    "rollout/response_tokens": ("tokens", "mean length of a response"),
    "rollout/tokens": ("tokens", "tokens sampled in this update"),
    "rollout/prompt_tokens": ("tokens", "tokens given in this update: prompts, or what continued a row"),
    "rollout/batches": ("rollouts", "rollouts made, until enough groups passed the method's filters"),
    "rollout/dropped_groups": ("groups", "played and not trained on; the other rollout/ metrics count them"),
    "rollout/failed": ("trajectories", "given up for their environment's failure or the time limit; no rows"),
    "rollout/failed/*": ("trajectories", "the same by reason; only where there are some"),
    "rollout/rerolled_groups": ("groups", "played again since a member failed (on_failure: reroll)"),
    "rollout/lost_groups": ("groups", "given up, and replaced by other tasks, since members failed"),
    "rollout/stopped_groups": ("groups", "stopped since enough had passed; no other metric counts them"),
    "rollout/unplayed_tokens": (
        "tokens",
        "sampled beyond these: answers not played, or of what failed or stopped",
    ),
    "search/rounds": ("rounds", "3SPO: rounds of the searches, one state of each task in every round"),
    "search/answers": ("steps", "3SPO: answers played"),
    "search/branched": ("states", "3SPO: states with several answers, trained on in post-step updates"),
    "search/turned_back": ("states", "3SPO: states not answered in, as trying has not helped there"),
    **{name: ("—", meaning) for name, meaning in CREDIT_METRICS.items()},
    **{f"probe/{name}/seconds": ("s", f"measuring {name}, when the method asks for it") for name in _PROBED},
    **{f"probe/{name}/tokens": ("tokens", f"scored or sampled to measure {name}") for name in _PROBED},
    **{f"probe/{name}/without": ("share", "response tokens without that context") for name in PRIVILEGED},
    **{f"probe/{name}/trimmed": ("rows", "context shortened to fit the window") for name in PRIVILEGED},
    **{f"probe/{name}/no_room": ("rows", "no context, as none fits the window") for name in PRIVILEGED},
    "probe/continuations/trajectories": ("trajectories", "continuations played"),
    "train/loss": ("nats", "Σ weight·loss with KL, entropy and auxiliary terms, mean over optimiser steps"),
    "train/policy_loss": ("nats", "the same without these terms"),
    "train/aux_loss": (
        "nats",
        "Σ weight·w·(−logp_now), w the credit method's auxiliary weights (0 without): the distillation term "
        "less the teacher's part, which has no gradient; mean over optimiser steps",
    ),
    "train/kl_ref": ("nats", "KL estimate to the frozen reference, mean over tokens; absent without one"),
    "train/kl_held": (
        "share",
        "tokens whose KL estimate stands at the limit of k3's outer clip: no KL gradient there (only with a "
        "reference)",
    ),
    "train/kl_sampled": (
        "nats",
        "mean of logp_sampled − logp_now over the passes trained with: drift from the sampling policy. About "
        "0 with one optimiser step per update, whatever it moves; see train/kl_moved",
    ),
    "train/kl_moved": (
        "nats",
        "k3 estimate of KL(before ‖ after the update) per token, on rows with about 1/64 of its tokens, "
        "scored before its first optimiser step and after its last",
    ),
    "train/weights_changed": (
        "share",
        "trained weights that this update changed, in the type and form they are handed to the policy in "
        "(bfloat16 rounded; adapters as they are, or merged where the generator holds none); of large "
        "weights, evenly spaced elements are counted",
    ),
    "train/entropy": (
        "nats",
        "entropy of the next-token distribution, mean over the tokens of train/loss_tokens: without KL and "
        "entropy terms, steps whose advantage is 0 are not among them",
    ),
    "train/clip_fraction": (
        "share",
        "tokens where the clip of the ratio is active: now / sampled, or with `train.mismatch` `tis` and "
        "`recompute` now / learner before the update",
    ),
    "train/dual_clip_fraction": ("share", "tokens where the dual clip is active"),
    "train/ratio_max": ("ratio", "largest such ratio of any token in any optimiser step"),
    "train/mismatch_mean": (
        "nats",
        "mean |logp_sampled − logp_now| before the update: sampler against learner (over all tokens, or with "
        "`train.mismatch=off` those of the first optimiser step)",
    ),
    "train/mismatch_kl": ("nats", "k3 estimate of KL(sampler ‖ learner) there, mean over tokens"),
    "train/mismatch_ratio_max": ("ratio", "largest ratio, either way, between the two there (1: they agree)"),
    "train/mismatch_capped": ("share", "`train.mismatch=tis`: tokens whose weight the cap cuts"),
    "train/mismatch_masked": ("share", "`train.mismatch=mask`: responses left out of the loss"),
    "train/stale_steps": ("share", "steps sampled with weights older than the learner's when trained on"),
    "train/staleness_max": ("updates", "age of the oldest of these weights"),
    "sync/moved_learner": (
        "nats",
        "root mean square of what the update moved the learner's log-probabilities by, on a fixed prompt",
    ),
    "sync/moved_sampler": ("nats", "the same for the sampler's"),
    "sync/logp_gap": (
        "nats",
        "largest |log-probability difference| between policy and learner on a fixed probe, after the weights "
        "were handed over "
        "(not measured with generator.backend=torch, which copies tensors into a model of its own)",
    ),
    "train/grad_norm": ("norm", "global gradient norm before clipping, mean over optimiser steps"),
    "train/grad_scale": (
        "share",
        "what clipping leaves of a gradient, min(1, train.grad_clip / norm), mean over optimiser steps",
    ),
    "train/lr": ("1/step", "learning rate"),
    "train/optimizer_steps": (
        "steps",
        "optimiser steps taken; with train.minibatch_rows they grow with the number of rows, step-wise with "
        "that of steps played, so a policy that plays longer also trains more often",
    ),
    "train/skipped_steps": ("steps", "mini-batches without any gradient: no step was taken"),
    "train/skipped_rows": ("share", "token rows without any gradient, left out of forward and backward"),
    "train/loss_tokens": (
        "tokens",
        "tokens that went through the loss, over all epochs: those with a gradient. With neither KL nor "
        "entropy term, steps whose advantage is 0 are left out",
    ),
    "train/input_tokens": ("tokens", "tokens through forward and backward without padding, over all epochs"),
    "eval/n": ("tasks", "tasks played"),
    "eval/success": ("share", "tasks solved; with several attempts at each, the mean of their shares"),
    "eval/success_lo": ("share", "lower end of its 95 % interval over tasks: Wilson's, clustered by task"),
    "eval/success_hi": ("share", "upper end"),
    "eval/success/*": ("share", "the same within one family"),
    "eval/samples": ("attempts", "attempts at each task; this and pass_… only where there are several"),
    "eval/pass_at/*": ("share", "pass@k: one of k attempts succeeds (unbiased, mean over tasks)"),
    "eval/pass_at_lo/*": ("share", "lower end of its 95 % interval over tasks"),
    "eval/pass_at_hi/*": ("share", "upper end"),
    "eval/pass_hat/*": ("share", "pass^k: all of k attempts succeed (unbiased, mean over tasks)"),
    "eval/pass_hat_lo/*": ("share", "lower end of its 95 % interval over tasks"),
    "eval/pass_hat_hi/*": ("share", "upper end"),
    "eval/score": ("0–1", "mean task score"),
    "eval/score_lo": (
        "0–1",
        "lower end of its 95 % interval over tasks: Student's; as success_lo of several attempts, and where "
        "all scores are 0 or 1",
    ),
    "eval/score_hi": ("0–1", "upper end"),
    "eval/mean_steps": ("steps", "mean steps of an attempt, successful or not"),
    "eval/truncated": ("share", "attempts ended by the step limit"),
    "eval/well_formed": ("share", "as rollout/well_formed"),
    "eval/admissible": ("share", "as rollout/admissible"),
    "eval/valid": ("share", "as rollout/valid"),
    "eval/tokens": ("tokens", "tokens sampled"),
    "eval/seconds": ("s", "wall time of the evaluation"),
    "time/rollout": ("s", "playing the trajectories"),
    "time/credit": ("s", "step table, probes, credit pipeline, token rows"),
    "time/score": (
        "s",
        "scoring responses with the learner: for `logging.learner_logp`, and before credit with "
        "`train.mismatch=mask`",
    ),
    "time/learner": ("s", "epochs of forward and backward passes, reference included"),
    "time/sync": ("s", "weights from learner to policy"),
    "time/eval": ("s", "evaluation"),
    "time/store": ("s", "writing the trajectories"),
    "time/update": ("s", "the whole update"),
    "speed/rollout_tokens_per_s": ("tokens/s", "tokens sampled per second of rollout, environments included"),
    "speed/train_tokens_per_s": ("tokens/s", "input tokens (without padding) per second of learner"),
}
"""Name (or a name ending in `/*`, for any one last part) → (unit, meaning)."""

TIMED = ("time/", "speed/", "eval/seconds", *(f"probe/{name}/seconds" for name in _PROBED))
"""Prefixes of what differs between two otherwise equal runs."""


def describe(name: str) -> tuple[str, str]:
    """Returns (unit, meaning) of a metric.

    Raises:
        KeyError: it is not in `METRICS`.
    """
    pattern = name.rpartition("/")[0] + "/*"
    if name not in METRICS and pattern not in METRICS:
        raise KeyError(
            f"metric {name!r} has no entry in rl.tracking.metrics.METRICS: add its unit and meaning there"
        )
    return METRICS.get(name) or METRICS[pattern]


def render_table() -> str:
    """Returns the table as Markdown, in the order of `METRICS`."""
    lines = ["| metric | unit | meaning |", "|---|---|---|"]
    for name, (unit, meaning) in METRICS.items():
        last = "reason" if "failed/" in name else "k" if "/pass_" in name else "family"
        shown = name.replace("/*", f"/‹{last}›")
        lines.append(f"| `{shown}` | {unit} | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Counts an update's trajectories; shares of steps are weighted by step, of trajectories by trajectory.

    Raises:
        ValueError: there are no trajectories.
    """
    trajectories = [tr for group in groups for tr in group]
    steps = [step for tr in trajectories for step in tr.steps]
    if not steps:
        raise ValueError("no steps to count: the rollout returned no trajectories")
    families = defaultdict(list)
    for tr in trajectories:
        families[tr.family].append(tr.success)
    tokens = sum(tr.tokens_sampled for tr in trajectories)
    mixed = [len({tr.success for tr in group}) == 2 for group in groups if group]
    flat = [len({sum(s.reward for s in tr.steps) for tr in group}) == 1 for group in groups if group]
    return {
        "rollout/success": _mean([tr.success for tr in trajectories]),
        **{f"rollout/success/{family}": _mean(wins) for family, wins in sorted(families.items())},
        "rollout/score": _mean([tr.score for tr in trajectories]),
        "rollout/return": _mean([sum(s.reward for s in tr.steps) for tr in trajectories]),
        "rollout/mixed_groups": _mean(mixed),
        "rollout/flat_groups": _mean(flat),
        "rollout/steps": len(steps) / len(trajectories),
        "rollout/truncated": _mean([tr.truncated for tr in trajectories]),
        "rollout/well_formed": _mean([s.well_formed for s in steps]),
        "rollout/admissible": _mean([s.admissible for s in steps]),
        "rollout/valid": _mean([s.valid for s in steps]),
        "rollout/cut_responses": _mean([s.finish == "length" for s in steps]),
        "rollout/response_tokens": tokens / len(steps),
        "rollout/tokens": float(tokens),
        "rollout/prompt_tokens": float(sum(len(s.prompt_ids) for s in steps)),
    }


def staleness(groups: Sequence[Group], version: int) -> dict[str, float]:
    """Counts the steps sampled with weights older than those the update starts from.

    Args:
        groups: What is trained on.
        version: The learner's, before the update.

    Raises:
        ValueError: there are no steps, or some were sampled with weights the learner never had.
    """
    ages = [version - step.policy_version for group in groups for tr in group for step in tr.steps]
    if not ages:
        raise ValueError("no steps to count: the rollout returned no trajectories")
    if min(ages) < 0:
        raise ValueError(
            f"a step was sampled with version {version - min(ages)} of the weights, but the learner has only "
            f"come to {version}: these trajectories are another run's"
        )
    return {"train/stale_steps": _mean([age > 0 for age in ages]), "train/staleness_max": float(max(ages))}


def count_metrics(counts: RolloutCounts) -> dict[str, float]:
    """Counts what a rollout lost."""
    return {
        "rollout/failed": float(counts.failed.total()),
        **{f"rollout/failed/{reason}": float(n) for reason, n in sorted(counts.failed.items())},
        "rollout/rerolled_groups": float(counts.rerolled),
        "rollout/lost_groups": float(len(counts.lost)),
        "rollout/stopped_groups": float(counts.stopped),
        "rollout/unplayed_tokens": float(counts.unplayed),
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
