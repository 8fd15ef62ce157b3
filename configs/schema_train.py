"""The options of `model` and `train`; see `configs.schema`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from configs.schema_env import Section


class LoraConfig(Section):
    """Low-rank adapters (peft). Dropout is always 0: responses are sampled without it."""

    r: int = Field(0, ge=0, description="Rank of the adapters (0: all weights are trained).")
    alpha: float = Field(64.0, gt=0.0, description="The adapters' output is scaled by alpha / r.")
    targets: str | list[str] = Field(
        "all-linear",
        description="Modules that get an adapter: names, or `all-linear` (all but the output layer).",
    )


class ModelConfig(Section):
    """The policy's weights."""

    path: str = Field("agent/assets/alfworld-tiny", description="Hugging Face folder or model id.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Type of weights and activations. With bfloat16 the optimiser keeps its own weights in "
        "float32.",
    )
    gradient_checkpointing: bool = Field(
        False, description="Compute activations again instead of keeping them: less memory, more time."
    )
    fused: bool = Field(
        False,
        description="Norms and feed-forward layers of the learner by Liger's kernels (Qwen2, Qwen3 on GPUs; "
        "`pip install -r requirements-fused.txt`): less memory for activations, equal up to rounding.",
    )
    compile: bool = Field(
        False,
        description="The same layers by torch.compile: for other models, without Liger or on a CPU. Equal up "
        "to rounding; the first update waits for the compiler, half a minute or more.",
    )
    lora: LoraConfig = LoraConfig()

    @model_validator(mode="after")
    def _one_kind(self) -> ModelConfig:
        if self.fused and self.compile:
            raise ValueError(
                "model.fused and model.compile both replace norms and feed-forward layers: set one of them"
            )
        return self


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

    updates: int = Field(150, ge=1, description="Number of updates.")
    engine: Literal["torch", "deepspeed"] = Field("torch", description="Training engine.")
    zero_stage: Literal[0, 1, 2, 3] = Field(1, description="DeepSpeed ZeRO stage.")
    offload: bool = Field(False, description="Let DeepSpeed keep the optimiser's state in main memory.")
    timeout_s: float = Field(
        1800.0, gt=0.0, description="How long one process waits for another before the run is ended."
    )
    epochs: int = Field(1, ge=1, description="Passes over an update's rows.")
    minibatches: int = Field(1, ge=1, description="Optimiser steps per pass (rows are split by trajectory).")
    minibatch_rows: int | None = Field(
        None,
        ge=1,
        description="Limit of rows per optimiser step, instead of `minibatches` (papers: 256 or 64). The "
        "more rows an update has, the more steps it takes; step-wise, longer trajectories mean more rows.",
    )
    token_budget: int = Field(
        16384, ge=64, description="Limit of tokens per forward pass (affects memory and speed only)."
    )
    lr: float = Field(1e-6, gt=0.0, description="Learning rate after warm-up.")
    lr_schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="Decay towards lr × lr_min_ratio."
    )
    lr_min_ratio: float = Field(0.1, ge=0.0, le=1.0, description="Final lr / initial lr of a decay.")
    lr_warmup: int = Field(0, ge=0, description="Updates of linear warm-up.")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW betas.")
    weight_decay: float = Field(0.01, ge=0.0, description="AdamW weight decay.")
    grad_clip: float = Field(1.0, gt=0.0, description="Limit of the global gradient norm.")
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
        description="What is done where sampler and learner compute different probabilities from the same "
        "weights. `off`: the ratio is now / sampled. `recompute`: the ratio is now / learner before the "
        "update, as in the papers' code, and nothing corrects the difference. `tis`: as `recompute`, and a "
        "token's loss is multiplied by min(learner / sampled, mismatch_cap). `mask`: as `off`, without the "
        "responses that have a token whose probabilities differ by more than the factor mismatch_cap.",
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
    kl_coef: float = Field(
        0.01, ge=0.0, description="β of the KL to the frozen reference (0: no reference is kept)."
    )
    reference: Literal["gpu", "cpu"] = Field(
        "gpu",
        description="Where the frozen reference rests. `gpu`: a copy of all weights beside the model, on "
        "each card. `cpu`: that copy in main memory, on the card only while it scores an update's rows: "
        "for models that leave it no room (14B on 8 × 80 GB). With adapters the reference is the model "
        "without them and takes no memory.",
    )
    kl_kind: Literal["k1", "abs", "k2", "k3"] = Field("k3", description="Per-token KL estimator.")
    entropy_coef: float = Field(0.001, ge=0.0, description="Coefficient of the entropy bonus.")
    mask_truncated: bool = Field(True, description="Leave responses cut by the length limit out of the loss.")
    masked_rows: Literal["abstain", "vote"] = Field(
        "abstain",
        description="Whether steps without any token in the loss (`mask_truncated`, `mismatch: mask`) count "
        "in the credit's statistics. `abstain`: no mean, spread or count includes them, as if they had not "
        "been played (they stay in trajectories, histories and graphs). `vote`: they count like any other.",
    )

    @field_validator("clip_low", "clip_high")
    @classmethod
    def _clip_of_the_loss(cls, value: float | None, info: ValidationInfo) -> float | None:
        loss = info.data.get("loss")
        return CLIPS[loss][info.field_name] if value is None and loss in CLIPS else value
