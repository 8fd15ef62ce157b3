"""Every option of a run: its type, range, default and meaning. The one place a default is stated.

Layers (lowest first): the defaults here < base files < experiment file < command line. Derived
values are properties, never fields. See `configs.load` for the layering and its provenance.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from configs.choosing import CHOOSING
from configs.schema_env import EnvConfig, Section, WebshopConfig, split_urls

__all__ = ["Config", "EnvConfig", "Section", "WebshopConfig"]


class LoraConfig(Section):
    """Low-rank adapters (peft); dropout is always 0, as the sampled distribution has none."""

    r: int = Field(0, ge=0, description="Rank of the adapters (0: all weights are trained).")
    alpha: float = Field(64.0, gt=0.0, description="Adapters count alpha / r.")
    targets: str | list[str] = Field(
        "all-linear", description="Modules that get one: names, or `all-linear` (all but the output layer)."
    )


class ModelConfig(Section):
    """The policy's weights."""

    path: str = Field("agent/assets/alfworld-tiny", description="Hugging Face folder or model id.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Weights and activations. With bfloat16 the optimiser keeps float32 weights of its own.",
    )
    gradient_checkpointing: bool = Field(False, description="Trade compute for activation memory.")
    lora: LoraConfig = LoraConfig()


class PromptConfig(Section):
    """How observations become tokens."""

    form: Literal["append", "stepwise"] = Field(
        "append",
        description="`append`: one growing token row a trajectory; `stepwise`: a prompt a step (papers).",
    )
    template: str = Field("alfworld_bare", description="File in configs/prompts/ (without .yaml), or a path.")
    thinking: Literal["auto", "ours", "template"] = Field(
        "auto",
        description="Whose <think> the model writes (docs/gpu.md). `ours`: the one our prompts ask for; "
        "the chat template's own thinking is switched off. `template`: the template's own, which the prompt "
        "may open already. `auto`: what the template does by itself; `ours` where it has no thinking.",
    )
    template_args: dict[str, JsonValue] = Field(
        default_factory=dict, description="Further arguments of the model's chat template."
    )
    history: int = Field(2, ge=0, description="Steps repeated in a step-wise prompt.")
    window: int = Field(1536, ge=64, description="Longest token row (prompt and responses).")
    parse: Literal["strict", "papers"] = Field(
        "strict",
        description="What a valid response is. `strict`: exactly a thought and an action, one that the "
        "environment lists; `papers`: the tags anywhere, any action, no Chinese characters; the action is "
        "lower-cased, and where there is none the response's end is played.",
    )
    max_response_tokens: int = Field(32, ge=4, description="Longest response, stop token included.")


class GeneratorConfig(Section):
    """What samples the responses (docs/gpu.md)."""

    backend: Literal["torch", "vllm", "server"] = Field(
        "torch",
        description="`torch`: plain PyTorch in the run's processes; `vllm`: vLLM in them; `server`: policy "
        "servers (`run.py serve-policy`), on accelerators or nodes of their own.",
    )
    memory: float = Field(
        0.5, gt=0.0, lt=1.0, description="Share of an accelerator's memory that vLLM takes while generating."
    )
    batched_tokens: int = Field(16384, ge=256, description="Most tokens vLLM computes in one round.")
    eager: bool = Field(False, description="vLLM without CUDA graphs: starts sooner, generates slower.")
    urls: tuple[str, ...] = Field((), description="Policy servers, separated by commas.")
    token_file: str | None = Field(
        None, description="File of the servers' token (null: the variable SIBLING_POLICY_TOKEN)."
    )
    transfer: Literal["group", "file", "body"] = Field(
        "body",
        description="How weights reach servers: `group`: a process group (NCCL between accelerators, gloo "
        "without); `file`: through a folder that both sides see; `body`: in requests.",
    )
    folder: str = Field("/dev/shm", description="Folder of transfers by `file`; shared among nodes.")
    timeout_s: float = Field(300.0, gt=0.0, description="Longest a transfer or an answer may take.")
    checksum: bool = Field(False, description="Compare checksums of all weights after every transfer.")

    @field_validator("urls", mode="before")
    @classmethod
    def _split(cls, urls: Any) -> Any:
        return split_urls(urls)


class RolloutConfig(Section):
    """How many trajectories an update sees and how they are sampled."""

    groups: int = Field(16, ge=1, description="Tasks an update.")
    group_size: int = Field(8, ge=1, description="Trajectories a task (K).")
    temperature: float = Field(1.0, gt=0.0, description="Sampling temperature (also used by the learner).")
    max_parallel: int = Field(128, ge=1, description="Trajectories in flight at once.")
    mode: Literal["auto", "deterministic", "free"] = Field(
        "auto",
        description="`deterministic`: in rounds, equal to the last bit for equal seeds; `free`: nobody waits "
        "for anybody; `auto`: deterministic on a CPU, free on an accelerator.",
    )
    on_failure: Literal["drop", "reroll", "stop"] = Field(
        "drop",
        description="When an environment has failed for good: leave its trajectory out, play its group "
        "again, or stop the run.",
    )
    time_limit_s: float | None = Field(
        None, gt=0.0, description="Longest a trajectory may take; longer is a failure (null: no limit)."
    )
    watchdog_s: float | None = Field(
        None,
        gt=0.0,
        description="End the process, with all stacks, when nothing in a rollout has moved for so long "
        "(null: never).",
    )
    staleness: Literal[0, 1] = Field(
        0,
        description="1: an update's trajectories are rolled out while the update before trains, so with "
        "weights one update older.",
    )
    early_stop: bool = Field(
        False,
        description="With a filter's `refill: batch`: stop groups that are cut anyway. Changes no result.",
    )


class CreditConfig(Section):
    """The credit method: an ordered list of stages (see configs/credit/)."""

    name: str = Field("gigpo", description="Name of the method, for logs.")
    settings: Literal["plain", "published"] = Field(
        "plain",
        description="`published`: as its authors ran the method in this environment, where that is public "
        "(docs/credit.md), options outside of credit included; `plain`: the method file's values.",
    )
    stages: dict[str, dict[str, Any]] = Field(
        default_factory=lambda: {"returns": {}, "gigpo": {}},
        description="Stage → its hyper-parameters, in order; validated by credit.pipeline.",
    )


class ScorerConfig(Section):
    """The frozen text-pair scorer of SCPO."""

    name: str = Field(
        "lexical",
        description="`lexical` (no weights), `bge` (the papers' cross-encoder), `embed` (a bi-encoder).",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Options of that scorer.")


class ProbeConfig(Section):
    """What some credit methods measure beyond the rollout; nothing is measured that no stage asks for."""

    peer: Literal["random", "shortest", "longest"] = Field(
        "random", description="The group's other success that `logp_peer` puts into the context."
    )
    window: int | None = Field(
        None, ge=64, description="Longest row with a privileged context, in tokens (null: prompt.window)."
    )
    judge_url: str | None = Field(
        None,
        description="OpenAI-compatible server of prover's proposer `judge` (http://127.0.0.1:8000/v1); a "
        "token is taken from the variable SIBLING_JUDGE_KEY.",
    )
    judge_model: str = Field("judge", description="Name of the model there.")


CLIPS = {
    "ppo": {"clip_low": 0.2, "clip_high": 0.2},
    "gspo": {
        "clip_low": 3e-4,
        "clip_high": 4e-4,
    },  # Zheng et al. 2025, §5.1; its ratio is a mean over a response
}
"""Each policy loss's own range of the ratio clip."""


class TrainConfig(Section):
    """The optimiser and the policy loss."""

    updates: int = Field(150, ge=1, description="Outer-loop updates.")
    engine: Literal["torch", "deepspeed"] = Field("torch", description="Training engine.")
    zero_stage: Literal[0, 1, 2, 3] = Field(1, description="DeepSpeed ZeRO stage.")
    offload: bool = Field(False, description="DeepSpeed keeps the optimiser's state in main memory.")
    timeout_s: float = Field(
        1800.0, gt=0.0, description="Longest one process waits for another before the run is ended."
    )
    epochs: int = Field(1, ge=1, description="Passes over an update's rows.")
    minibatches: int = Field(1, ge=1, description="Optimiser steps a pass (rows split by trajectory).")
    minibatch_rows: int | None = Field(
        None,
        ge=1,
        description="Most rows an optimiser step, instead of `minibatches` (papers: 256 or 64). An update "
        "then takes the more steps the more rows it has: step-wise, the longer its trajectories are.",
    )
    token_budget: int = Field(16384, ge=64, description="Most padded tokens a forward pass (memory only).")
    lr: float = Field(1e-6, gt=0.0, description="Learning rate after warm-up.")
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="Decay to lr_min_ratio."
    )
    lr_min_ratio: float = Field(0.1, ge=0.0, le=1.0, description="Final / initial lr of the decays.")
    lr_warmup: int = Field(0, ge=0, description="Updates of linear warm-up.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW betas.")
    weight_decay: float = Field(0.01, ge=0.0, description="AdamW weight decay.")
    grad_clip: float = Field(1.0, gt=0.0, description="Global gradient norm limit.")
    loss: Literal["ppo", "gspo"] = Field("ppo", description="Policy loss.")
    clip_low: float | None = Field(
        None, gt=0.0, lt=1.0, description="ε_lo of the ratio clip (null: the loss's own, ppo 0.2, gspo 3e-4)."
    )
    clip_high: float | None = Field(
        None,
        gt=0.0,
        description="ε_hi (null: the loss's own, ppo 0.2, gspo 4e-4); > clip_low is DAPO's clip-higher.",
    )
    mismatch: Literal["off", "tis", "mask", "recompute"] = Field(
        "off",
        description="Where sampler and learner differ though their weights are the same. `off`: the ratio is "
        "now / sampled. `recompute`: the ratio is now / learner before the update, as in the papers' code, "
        "and nothing corrects what the sampler computed differently. `tis`: as `recompute`, and a token's "
        "loss is weighed with min(learner / sampled, mismatch_cap). `mask`: as `off` without the responses "
        "that have a token whose probabilities differ by more than the factor mismatch_cap.",
    )
    mismatch_cap: float = Field(2.0, gt=1.0, description="Limit of `tis` and `mask`.")
    dual_clip: float | None = Field(3.0, gt=1.0, description="Dual-clip constant c for A<0 (null: off).")
    aggregation: Literal[
        "token-mean",
        "traj-mean-token-mean",
        "seq-mean-token-sum",
        "seq-mean-token-mean",
        "seq-mean-token-sum-norm",
    ] = Field("token-mean", description="How token losses become one number (seq = a step's response).")
    kl_coef: float = Field(0.01, ge=0.0, description="β of the KL to the frozen reference (0: none is kept).")
    kl_kind: Literal["k1", "abs", "k2", "k3"] = Field("k3", description="Per-token KL estimator.")
    entropy_coef: float = Field(0.001, ge=0.0, description="Entropy bonus.")
    mask_truncated: bool = Field(True, description="Responses cut by length carry no loss.")
    masked_rows: Literal["abstain", "vote"] = Field(
        "abstain",
        description="Steps without a token under the loss (`mask_truncated`, `mismatch: mask`) in the "
        "credit's statistics: `abstain`: no mean, spread or count sees them, as if they had not been played "
        "(they stay in trajectories, histories and graphs). `vote`: they count like any other.",
    )

    @field_validator("clip_low", "clip_high")
    @classmethod
    def _clip_of_the_loss(cls, value: float | None, info: ValidationInfo) -> float | None:
        loss = info.data.get("loss")
        return CLIPS[loss][info.field_name] if value is None and loss in CLIPS else value


class EvalConfig(Section):
    """Evaluation on a fixed split."""

    split: str = Field("valid_seen", description="Split evaluated on.")
    tasks: int | None = Field(
        None, ge=1, description="Tasks of the split, chosen as `env.subset_seed` says (null: all)."
    )
    manifest: str | None = Field(
        None,
        description="Play exactly the tasks that this file lists, instead of `eval.tasks`: a manifest that "
        "an evaluation or a run wrote (docs/experiments.md).",
    )
    every: int = Field(0, ge=0, description="Updates between evaluations (0: only before and after).")
    temperature: float = Field(0.4, ge=0.0, description="Sampling temperature (papers: 0.4; 0 = greedy).")
    max_parallel: int = Field(128, ge=1, description="Trajectories in flight; never changes the result.")
    samples: int = Field(
        1,
        ge=1,
        description="Attempts at each task. Success is then their mean; with 2 or more, pass@k (one of k "
        "succeeds) and pass^k (all do) are reported too. All intervals are over tasks. Costs as many times "
        "the time.",
    )


class CheckpointConfig(Section):
    """Checkpoints of a run."""

    every: int = Field(10, ge=0, description="Updates between checkpoints (0: only at the end).")
    keep: int = Field(
        2, ge=1, description="Newest checkpoints kept; one more is on disk while it is written."
    )
    keep_best: str | None = Field(
        None,
        description="Also keep the checkpoint with the highest value of this metric at an evaluation "
        "(eval/success, eval/score, eval/success/FAMILY, eval/pass_at/K, eval/pass_hat/K; needs eval.every); "
        "`run.py eval --run RUN --best` loads it. Of equal ones the earliest stays. One more checkpoint on "
        "disk: at most keep + 2 (null: none).",
    )

    @field_validator("keep_best")
    @classmethod
    def _chosen_by(cls, metric: str | None) -> str | None:
        if metric is not None and not re.fullmatch(CHOOSING, metric):
            raise ValueError(
                "must be a metric to choose by: eval/success, eval/score, eval/success/FAMILY or, with "
                "eval.samples ≥ 2, eval/pass_at/K or eval/pass_hat/K"
            )
        return metric


class LoggingConfig(Section):
    """Where a run's figures go besides runs/<id>/metrics.jsonl."""

    wandb: Literal["auto", "online", "offline", "off"] = Field(
        "auto", description="`auto`: online with an account, offline without."
    )
    project: str = Field("sibling", description="W&B project.")
    entity: str | None = Field(None, description="W&B team or user (null: the account's own).")
    group: str | None = Field(None, description="W&B group (null: the experiment's name); sweeps set theirs.")
    tags: list[str] = Field(
        default_factory=list, description="W&B tags, besides environment, credit method and scorer."
    )
    table: int = Field(
        8, ge=0, description="Trajectories in the W&B table of every update written as parquet (0: no table)."
    )
    checkpoints: Literal["none", "last", "all"] = Field(
        "none", description="Checkpoints uploaded to W&B as artifacts (weights and optimiser: large)."
    )
    tensorboard: bool = Field(
        False, description="Also write event files for TensorBoard: runs/ID/tensorboard."
    )
    learner_logp: bool = Field(
        False,
        description="Score every written response with the learner too, before the update: the viewer then "
        "shows its gap to the sampler by token. Costs a forward pass.",
    )
    trajectories: int = Field(
        1, ge=0, description="Write every n-th update's trajectories as parquet (0: never)."
    )


class Config(Section):
    """A whole run."""

    name: str = Field("run", description="Name of the experiment; part of the run id.")
    seed: int = Field(0, ge=0, description="The one seed everything derives from.")
    threads: int = Field(0, ge=0, description="CPU threads of torch (0: all cores).")
    protocol: str | None = Field(
        None,
        description="Choices between a method and its figures, as a whole: `verl_agent` (the papers' public "
        "code) or `recommended`, files of configs/protocol/; null: option by option. `run.py show "
        "EXPERIMENT --against protocol/NAME` says what one changes.",
    )
    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    prompt: PromptConfig = PromptConfig()
    generator: GeneratorConfig = GeneratorConfig()
    rollout: RolloutConfig = RolloutConfig()
    credit: CreditConfig = CreditConfig()
    scorer: ScorerConfig = ScorerConfig()
    probes: ProbeConfig = ProbeConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    logging: LoggingConfig = LoggingConfig()

    @property
    def trajectories(self) -> int:
        """Trajectories an update."""
        return self.rollout.groups * self.rollout.group_size

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.prompt.max_response_tokens >= self.prompt.window:
            raise ValueError(
                f"prompt.max_response_tokens ({self.prompt.max_response_tokens}) leaves no room for a prompt "
                f"in prompt.window ({self.prompt.window}): make the window larger or the response shorter"
            )
        if self.train.loss == "gspo" and self.train.aggregation != "seq-mean-token-mean":
            raise ValueError(
                f"train.loss=gspo is defined with train.aggregation=seq-mean-token-mean, got "
                f"{self.train.aggregation!r}: set it, or use train.loss=ppo"
            )
        if self.train.minibatch_rows is not None and self.train.minibatches != 1:
            raise ValueError(
                f"train.minibatches ({self.train.minibatches}) and train.minibatch_rows "
                f"({self.train.minibatch_rows}) both say how an update is split: set one of them"
            )
        if self.checkpoint.keep_best and not self.eval.every:
            raise ValueError(
                f"checkpoint.keep_best={self.checkpoint.keep_best} chooses among evaluations, but with "
                "eval.every=0 there are none but before and after: set eval.every"
            )
        if self.generator.backend == "server" and not self.generator.urls:
            raise ValueError(
                "generator.backend=server needs generator.urls: start servers with `run.py serve-policy` and "
                "name them, separated by commas"
            )
        if self.train.minibatches > self.trajectories:
            raise ValueError(
                f"train.minibatches ({self.train.minibatches}) exceeds the {self.trajectories} trajectories "
                "of an update (rollout.groups × rollout.group_size): lower it"
            )
        return self
