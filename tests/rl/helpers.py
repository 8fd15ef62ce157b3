"""What the tests of `rl` share: hand-made trajectories, a pretrained toy policy, and a whole toy run."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Sampling
from agent.prompts.builder import AppendTexts, PromptBuilder, PromptTemplate
from agent.prompts.turns import TurnFormat
from agent.rollout.rollout import rollout
from agent.types import Group, Step, Trajectory
from credit.pipeline import Pipeline
from envs.base import Env, Observation
from rl.checkpoint import Checkpoints, TrainState
from rl.learner.engine import OptimOptions
from rl.learner.forward import ResponseModel
from rl.learner.learner import BatchOptions, Learner
from rl.learner.loss import LossOptions
from rl.learner.pack import collate, loss_rows
from rl.learner.reference import FrozenCopy
from rl.learner.rounds import rounds
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.loop import train
from rl.probes.probes import ProbeOptions
from rl.rows.assemble import TokenRow, token_rows
from rl.settings import MaskedRows, Outputs, RolloutSettings, RunSchedule
from rl.tracking.progress import ProgressPanel
from rl.tracking.tracker import Mirror, Tracker
from rl.tracking.trajectory_store import TrajectoryStore
from tests.toy import ScriptedPolicy, ToyEnv, scripted_expert, tiny_model, toy_tasks, toy_tokenizer

VOCAB = 40
TEMPLATE = PromptTemplate(
    system=None,
    append=AppendTexts(first="{observation}", later="{observation}", restart="{instruction} {observation}"),
)


def step(
    t: int, prompt: Sequence[int], response: Sequence[int], *, fresh: bool = False, **changes: object
) -> Step:
    """A step with plausible fields; `changes` replaces any of them."""
    fields = dict(
        t=t,
        observation=Observation(f"seen {t}", f"anchor {t}", ("look",)),
        prompt_ids=list(prompt),
        fresh=fresh,
        response_ids=list(response),
        logp_sampled=[-1.0 - 0.1 * i for i in range(len(response))],
        finish="stop",
        policy_version=0,
        response="<action>look</action>",
        thought="",
        action="look",
        well_formed=True,
        admissible=True,
        reward=0.0,
        next_observation=Observation(f"seen {t + 1}", f"anchor {t + 1}", ("look",)),
    )
    return Step(**{**fields, **changes})


def random_groups(
    groups: int = 2, size: int = 3, *, seed: int = 0, append: bool = True, vocab: int = VOCAB
) -> list[Group]:
    """Trajectories of 1 to 4 steps with random tokens; odd members succeed."""
    rng = np.random.default_rng(seed)

    def tokens(low: int, high: int) -> list[int]:
        return rng.integers(1, vocab, rng.integers(low, high)).tolist()

    result = []
    for g in range(groups):
        members = []
        for k in range(size):
            count = int(rng.integers(1, 5))
            steps = [step(t, tokens(3, 9), tokens(2, 7), fresh=t == 0 or not append) for t in range(count)]
            steps[-1].reward = float(k % 2)
            members.append(Trajectory(f"task-{g}", "look", "look", g, k, seed, steps, success=k % 2 == 1))
        result.append(members)
    return result


def score_with(model: PreTrainedModel, groups: Sequence[Group], temperature: float = 1.0) -> list[TokenRow]:
    """Rows of `groups` whose `logp_sampled` is what `model` says, plus a little noise."""
    rows = token_rows(groups)
    learner = make_learner(copy.deepcopy(model), temperature=temperature)
    rng = np.random.default_rng(0)
    noisy = [logp + rng.normal(0, 0.05, len(logp)).astype(np.float32) for logp in learner.logps(rows)]
    return [replace(row, logp_sampled=logp) for row, logp in zip(rows, noisy, strict=True)]


def double_model(vocab: int, seed: int = 0) -> PreTrainedModel:
    """A tiny peaked model in float64 throughout (the library's norm would go through float32)."""
    model = tiny_model(vocab, std=0.3, seed=seed).double()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__ == "Qwen2RMSNorm":
                norm = torch.nn.RMSNorm(child.weight.shape[0], eps=child.variance_epsilon)
                norm.weight = child.weight
                setattr(parent, name, norm)
    return model


def make_learner(
    model: PreTrainedModel,
    *,
    loss: LossOptions | None = None,
    batches: BatchOptions | None = None,
    lr: float = 1e-3,
    temperature: float = 1.0,
    optim: OptimOptions | None = None,
    reference: PreTrainedModel | None = None,
) -> Learner:
    """A learner on the torch engine that trains `model` in place."""
    return Learner(
        TorchEngine(model, optim or OptimOptions()),
        loss=loss or LossOptions(),
        batches=batches or BatchOptions(token_budget=512),
        lr=LearningRate(lr),
        temperature=temperature,
        seed=0,
        reference=None if reference is None else FrozenCopy(reference),
    )


@dataclass(frozen=True)
class Toy:
    """The toy environment's tokenizer, prompts and a policy that knows the commands but not the way."""

    tokenizer: PreTrainedTokenizerFast
    prompts: PromptBuilder
    model: PreTrainedModel

    def policy(self) -> TorchPolicy:
        """A fresh policy of the pretrained weights."""
        return TorchPolicy(
            self.model, self.prompts.turns.stop_ids, window=self.prompts.window, max_parallel=64
        )


@cache
def pretrained_toy(steps: int = 240, error: float = 0.8, rooms: int = 2) -> Toy:
    """Imitates random commands for a few seconds: well-formed responses, success of a random walk."""
    tokenizer = toy_tokenizer()
    prompts = PromptBuilder(
        turns=TurnFormat(tokenizer),
        form="append",
        template=TEMPLATE,
        history=0,
        window=384,
        max_response_tokens=16,
    )
    model = tiny_model(len(tokenizer), hidden=64, layers=2, intermediate=128)
    demonstrations = rollout(
        ScriptedPolicy(tokenizer, scripted_expert(error=error), window=384),
        Sampling(1.0),
        ToyEnv,
        toy_tasks(48, seed=7, rooms=rooms, split="demo"),
        group_size=1,
        prompts=prompts,
        max_parallel=48,
        seed=11,
    )
    imitate(model, token_rows(demonstrations), steps=steps)
    return Toy(tokenizer, prompts, model)


def imitate(model: PreTrainedModel, rows: Sequence[TokenRow], *, steps: int) -> None:
    """Maximises the likelihood of the rows' responses, a batch of 12 rows per step."""
    module = ResponseModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    prepared = loss_rows(rows, np.ones(1 + max(r.spans[-1][2] for r in rows)), LossOptions())[0]
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = [prepared[i] for i in rng.choice(len(prepared), 12, replace=False)]
        for (numbers,) in rounds([len(row.ids) for row in chosen], 4096, ranks=1):
            batch = collate([chosen[i] for i in numbers], torch.device("cpu"))
            logp_T, _ = module(batch.ids_N, batch.rows, batch.position_T, batch.target_T, 1.0)
            (-logp_T.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def toy_run(
    run_dir: Path,
    *,
    updates: int,
    resume: bool = False,
    groups: int = 8,
    group_size: int = 8,
    lr: float = 5e-4,
    credit: Sequence[str] = ("returns", "gigpo"),
    services: Mapping[str, object] | None = None,
    probing: ProbeOptions | None = None,
    environment: Callable[[], Env] = ToyEnv,
    model: PreTrainedModel | None = None,
    optim: OptimOptions | None = None,
    mirrors: Sequence[Mirror] = (),
    loss: LossOptions | None = None,
    minibatches: int = 2,
    checkpoint_every: int = 0,
    tasks: int = 24,
    config: dict[str, object] | None = None,
    evaluate: Callable | None = None,
    eval_every: int = 0,
    keep_best: str | None = None,
    staleness: int = 0,
    score_every: int = 0,
    masked_rows: MaskedRows = "vote",
) -> tuple[Learner, TrainState]:
    """Trains the pretrained toy policy as a run would: policy, learner, outputs and all.

    Masked rows vote unless told otherwise: thresholds of learning curves are those of such runs.
    """
    toy = pretrained_toy()
    config = config or {"train": {"lr_schedule": "constant", "updates": updates}}
    learner = make_learner(
        copy.deepcopy(model or toy.model),
        loss=loss,
        lr=lr,
        optim=optim,
        batches=BatchOptions(minibatches=minibatches, token_budget=4096),
        reference=copy.deepcopy(toy.model) if loss and loss.kl_coef else None,
    )
    checkpoints = Checkpoints(
        run_dir / "checkpoints", keep=2, tokenizer=toy.tokenizer, config=config, keep_best=keep_best
    )
    latest = checkpoints.latest() if resume else None
    state = checkpoints.restore(latest, learner) if latest else TrainState()
    outputs = Outputs(
        tracker=Tracker(run_dir, mirrors=mirrors, resume_update=state.update if resume else None),
        checkpoints=checkpoints,
        store=TrajectoryStore(run_dir / "trajectories"),
        progress=ProgressPanel(updates, groups * group_size, Console(file=io.StringIO())),
    )
    state = train(
        toy.policy(),
        learner,
        Pipeline.from_config({name: {} for name in credit}),
        settings=RolloutSettings(
            environment,
            toy_tasks(tasks, seed=1, rooms=2),
            toy.prompts,
            groups=groups,
            group_size=group_size,
            masked_rows=masked_rows,
        ),
        schedule=RunSchedule(
            updates,
            seed=3,
            eval_every=eval_every,
            checkpoint_every=checkpoint_every,
            staleness=staleness,
            score_every=score_every,
        ),
        outputs=outputs,
        state=state,
        services=services,
        probing=probing,
        evaluate=evaluate,
    )
    return learner, state
