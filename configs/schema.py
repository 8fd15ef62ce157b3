"""Every option of a run: its type, range, default and meaning. The one place a default is stated.

Layers, lowest first: the defaults here < base files < experiment file < command line (`configs.load`).
Derived values are properties, never fields.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from configs.schema_env import EnvConfig, Section, split_urls
from configs.schema_eval import CheckpointConfig, EvalConfig
from configs.schema_train import ModelConfig, TrainConfig
from configs.teams import check_team

__all__ = ["Config", "EnvConfig", "Section"]


class PromptConfig(Section):
    """How observations become tokens."""

    form: Literal["append", "stepwise"] = Field(
        "append",
        description="`append`: one growing token row per trajectory; `stepwise`: one prompt per step, as in "
        "the papers.",
    )
    template: str = Field("alfworld_bare", description="File in configs/prompts/ (without .yaml), or a path.")
    thinking: Literal["auto", "ours", "template"] = Field(
        "auto",
        description="Which <think> the model writes (docs/gpu.md). `ours`: the one our prompts ask for; "
        "the chat template's own thinking is switched off. `template`: the template's own, which the prompt "
        "may already open. `auto`: the template's default; `ours` if it has no thinking.",
    )
    template_args: dict[str, JsonValue] = Field(
        default_factory=dict, description="More arguments for the model's chat template."
    )
    history: int = Field(2, ge=0, description="Past steps shown in a step-wise prompt.")
    window: int = Field(
        1536, ge=64, description="Limit of a token row: prompt and responses together, in tokens."
    )
    parse: Literal["strict", "papers"] = Field(
        "strict",
        description="What counts as a valid response. `strict`: exactly one thought and one action, which "
        "the environment must list; `papers`: the tags anywhere, any action, no Chinese characters; the "
        "action is lower-cased, and without an action the end of the response is played.",
    )
    max_response_tokens: int = Field(
        32, ge=4, description="Limit of a response in tokens, stop token included."
    )


class GeneratorConfig(Section):
    """What samples the responses (docs/gpu.md)."""

    backend: Literal["torch", "vllm", "server"] = Field(
        "torch",
        description="`torch`: plain PyTorch in the run's own processes; `vllm`: vLLM in the run's own "
        "processes; `server`: policy servers (`run.py serve-policy`) on other accelerators or machines.",
    )
    memory: float = Field(
        0.5, gt=0.0, lt=1.0, description="Share of an accelerator's memory that vLLM takes while generating."
    )
    batched_tokens: int = Field(16384, ge=256, description="Limit of tokens that vLLM computes in one round.")
    eager: bool = Field(False, description="vLLM without CUDA graphs: starts sooner, generates slower.")
    tensor_parallel: int = Field(
        1,
        ge=1,
        description="vLLM: cards that hold one copy of the model for generation; neighbouring processes are "
        "teams of this size. Only for models past one card: every token waits for the whole team. Must "
        "divide the number of processes and the model's key-value heads.",
    )
    urls: tuple[str, ...] = Field((), description="Policy servers, separated by commas.")
    token_file: str | None = Field(
        None, description="File with the servers' token (null: the variable SIBLING_POLICY_TOKEN)."
    )
    transfer: Literal["group", "file", "body"] = Field(
        "body",
        description="How weights reach servers: `group`: a process group (NCCL between accelerators, gloo "
        "without); `file`: through a folder that both sides can read; `body`: in the requests.",
    )
    folder: str = Field("/dev/shm", description="Folder for transfers by `file`; all machines must share it.")
    timeout_s: float = Field(300.0, gt=0.0, description="Time limit of a transfer or an answer.")
    checksum: bool = Field(
        True, description="With servers: compare checksums of all weights after every transfer."
    )
    tolerance: float | None = Field(
        None,
        gt=0.0,
        description="Largest difference (nats) between the log-probabilities of generator and learner on a "
        "fixed prompt after every transfer (null: 1e-3 in float32, 0.5 in bfloat16).",
    )

    @field_validator("urls", mode="before")
    @classmethod
    def _split(cls, urls: Any) -> Any:
        return split_urls(urls)


class RolloutConfig(Section):
    """How many trajectories an update has and how they are sampled."""

    groups: int = Field(16, ge=1, description="Tasks per update.")
    group_size: int = Field(8, ge=1, description="Trajectories per task (K).")
    temperature: float = Field(1.0, gt=0.0, description="Sampling temperature (also used by the learner).")
    max_parallel: int = Field(128, ge=1, description="Trajectories in flight at once.")
    mode: Literal["auto", "deterministic", "free"] = Field(
        "auto",
        description="`deterministic`: all trajectories step together, equal to the last bit for equal seeds; "
        "`free`: no trajectory waits for another; `auto`: deterministic on a CPU, free on an accelerator.",
    )
    on_failure: Literal["drop", "reroll", "stop"] = Field(
        "drop",
        description="What happens when an environment fails and cannot be restored. `drop`: its trajectory "
        "is left out; `reroll`: its group is played again; `stop`: the run stops.",
    )
    time_limit_s: float | None = Field(
        None,
        gt=0.0,
        description="Time limit of a trajectory; a longer one counts as failed (null: no limit).",
    )
    watchdog_s: float | None = Field(
        None,
        gt=0.0,
        description="End the process, and print all stacks, when a rollout makes no progress for so long "
        "(null: never).",
    )
    staleness: Literal[0, 1] = Field(
        0,
        description="1: an update's trajectories are rolled out while the previous update trains, with "
        "weights that are one update older.",
    )
    early_stop: bool = Field(
        False,
        description="With a filter's `refill: batch`: stop groups that will not be used. Changes no result.",
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
        description="The stages in order, each with its options; checked by credit.pipeline.",
    )


class ScorerConfig(Section):
    """The frozen text-pair scorer of SCPO."""

    name: str = Field(
        "lexical",
        description="`lexical` (no weights), `bge` (the papers' cross-encoder), `embed` (a bi-encoder).",
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Options of that scorer.")


class ProbeConfig(Section):
    """What some credit methods measure beyond the rollout; only what a stage asks for is measured."""

    peer: Literal["random", "shortest", "longest"] = Field(
        "random", description="Which other success of the group `logp_peer` puts into the context."
    )
    window: int | None = Field(
        None, ge=64, description="Limit of a row with a privileged context, in tokens (null: prompt.window)."
    )
    judge_url: str | None = Field(
        None,
        description="OpenAI-compatible server for prover's proposer `judge` (http://127.0.0.1:8000/v1); its "
        "token is read from the variable SIBLING_JUDGE_KEY.",
    )
    judge_model: str = Field("judge", description="Name of the model on that server.")


class LoggingConfig(Section):
    """Where a run's figures go besides runs/ID/metrics.jsonl."""

    wandb: Literal["auto", "online", "offline", "off"] = Field(
        "auto", description="`auto`: online if there is an account, else offline."
    )
    project: str = Field("sibling", description="W&B project.")
    entity: str | None = Field(None, description="W&B team or user (null: the account's own).")
    group: str | None = Field(
        None, description="W&B group (null: the experiment's name); sweeps set their own."
    )
    tags: list[str] = Field(
        default_factory=list,
        description="More W&B tags; environment, credit method and scorer are always tagged.",
    )
    table: int = Field(
        8,
        ge=0,
        description="Trajectories in the W&B table of every update that is written as parquet (0: no table).",
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
        "shows the gap between learner and sampler per token. Costs a forward pass.",
    )
    trajectories: int = Field(
        1, ge=0, description="Write the trajectories of every n-th update as parquet (0: never)."
    )


class Config(Section):
    """A whole run."""

    name: str = Field("run", description="Name of the experiment; part of the run id.")
    seed: int = Field(0, ge=0, description="The one seed from which all others are derived.")
    processes: int = Field(
        0,
        ge=0,
        description="Equal processes that share rollouts, evaluations and training (0: one per physical core "
        "where all is plain PyTorch on a CPU, else one). A run that is resumed keeps its number. `--nproc`.",
    )
    threads: int = Field(
        0, ge=0, description="CPU threads of torch in each process (0: all cores, shared by the processes)."
    )
    protocol: str | None = Field(
        None,
        description="Sets the training choices that papers seldom mention, all together: `verl_agent` (the "
        "papers' public code) or `recommended`, files in configs/protocol/; null: each option by itself. "
        "`run.py show EXPERIMENT --against protocol/NAME` lists what a protocol changes.",
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
        """Trajectories per update."""
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
                f"({self.train.minibatch_rows}) both split an update: set one of them"
            )
        if self.checkpoint.keep_best and not self.eval.every:
            raise ValueError(
                f"checkpoint.keep_best={self.checkpoint.keep_best} chooses among evaluations on the way, "
                "but with eval.every=0 there are none: set eval.every"
            )
        if self.generator.backend == "server" and not self.generator.urls:
            raise ValueError(
                "generator.backend=server needs generator.urls: start servers with `run.py serve-policy` and "
                "name them, separated by commas"
            )
        if self.train.reference == "cpu" and self.model.lora.r:
            raise ValueError(
                "train.reference=cpu has nothing to move: with adapters (model.lora.r) the reference is the "
                "model without them, and takes no memory: leave train.reference at gpu"
            )
        generator = self.generator
        check_team(generator.tensor_parallel, generator.backend, self.train.engine, self.rollout.staleness)
        if self.train.minibatches > self.trajectories:
            raise ValueError(
                f"train.minibatches ({self.train.minibatches}) exceeds the {self.trajectories} trajectories "
                "of an update (rollout.groups × rollout.group_size): lower it"
            )
        return self
