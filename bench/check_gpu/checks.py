"""What is checked in every rank; each check returns a figure or raises."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from transformers import Qwen2ForCausalLM

from agent.policy import Policy
from bench.check_gpu.single import LEARNING_RATE, TOLERANCE, Size, make_policy, memory, sample
from bench.ranks import Case, Trained, differences, train_case
from rl.contract import Contract
from rl.learner.deepspeed_engine import DeepSpeedEngine
from rl.learner.engine import OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.lora import LoraOptions, add_adapters
from rl.learner.loss import LossOptions
from rl.learner.processes import Channel, join
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import unique_weights
from rl.prefetch import Prefetch
from rl.rows.assemble import TokenRow
from rl.sync import SyncError, sync

TIMEOUT_S = 300.0
MESSAGE = 2**22  # floats of the collectives' messages: 16 MiB


class Skipped(Exception):
    """Nothing to check here; the message says why."""


class Failed(Exception):
    """A check found what it was looking for."""


@dataclass(slots=True)
class Bench:
    """What the checks of one rank share.

    Attributes:
        size: Of the model and its work.
        backend: Of the sampler: auto, vllm or torch.
        folder: Of the model's configuration.
        expected: What one process trains, by whether with adapters.
    """

    size: Size
    backend: str
    folder: Path
    expected: dict[bool, Trained]
    policy: Policy | None = None
    learner: Learner | None = None
    contract: Contract | None = None
    rows: list[TokenRow] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """Of this rank."""
        cuda = torch.cuda.is_available()
        return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")

    def model(self) -> Qwen2ForCausalLM:
        """The same random model on every rank."""
        torch.manual_seed(0)
        return Qwen2ForCausalLM(self.size.config()).to(self.size.dtype).to(self.device).eval()

    def make_learner(self, *, lora: bool = False) -> Learner:
        """A learner of it, under ZeRO-2."""
        model = self.model()
        if lora:
            add_adapters(model, LoraOptions(r=8))
        return Learner(
            DeepSpeedEngine(model, OptimOptions(), zero_stage=2, timeout_s=TIMEOUT_S),
            loss=LossOptions(),
            batches=BatchOptions(token_budget=self.size.token_budget),
            lr=LearningRate(LEARNING_RATE),
            temperature=1.0,
            seed=0,
        )

    def make_contract(self) -> Contract:
        """A contract with a probe that all ranks share."""
        probe = np.random.default_rng(7).integers(0, self.size.vocabulary, 48).tolist()
        return Contract(probe, 1.0, TOLERANCE[self.size.dtype])


def collectives(bench: Bench) -> str:
    """Sums and broadcasts are right; how fast a sum is."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((MESSAGE,), float(rank + 1), device=bench.device)
    dist.all_reduce(mine)
    if not bool((mine == size * (size + 1) / 2).all()):
        raise Failed(f"all_reduce of 1 … {size} gave {mine[0].item()}")
    sent = torch.full((MESSAGE,), float(rank), device=bench.device)
    dist.broadcast(sent, src=size - 1)
    if not bool((sent == size - 1).all()):
        raise Failed(f"broadcast from rank {size - 1} gave {sent[0].item()}")
    dist.barrier()
    began = time.perf_counter()
    for _ in range(5):
        dist.all_reduce(mine)
    dist.barrier()
    moved = 5 * 2 * (size - 1) / size * mine.nbytes
    return f"{dist.get_backend()}, {moved / (time.perf_counter() - began) / 1e9:.2f} GB/s"


def zero(stage: int) -> Callable[[Bench], str]:
    """Training under a ZeRO stage gives the weights of one process."""

    def check(bench: Bench) -> str:
        found = []
        for lora in (False, True):
            got = train_case(Case(stage, lora=lora, updates=2))
            loss, weight = differences(got, bench.expected[lora])
            if not weight < 1e-4:
                raise Failed(f"weights differ from one process's by {weight:.1e}{', adapters' * lora}")
            found.append(f"{weight:.0e}")
        return f"weights differ by {', '.join(found)} (with adapters)"

    return check


def generation(bench: Bench) -> str:
    """Every rank samples with a generator of its own."""
    model = bench.model()
    bench.policy = make_policy(bench.backend, bench.size, bench.folder, model)
    sample(bench.policy, bench.size, 0)  # compiles, captures graphs
    rows, seconds = sample(bench.policy, bench.size, 1)
    tokens = sum(len(row.logp_sampled) for row in rows)
    return f"{type(bench.policy).__name__}, {tokens / seconds:,.0f} tokens/s per rank"


def transfer(bench: Bench) -> str:
    """Weights of an update reach every rank's sampler."""
    bench.learner, bench.contract = bench.make_learner(), bench.make_contract()
    sync(bench.learner, bench.policy, bench.contract)
    _update(bench, 1)
    began = time.perf_counter()
    metrics = sync(bench.learner, bench.policy, bench.contract)
    return (
        f"{time.perf_counter() - began:.1f} s, gap {metrics['sync/logp_gap']:.1e} nats, "
        f"{metrics['train/weights_changed']:.1%} of the weights changed"
    )


def dropped_transfer(bench: Bench) -> str:
    """A planted fault: the sampler takes no weights and says that it has."""
    _update(bench, 2)
    policy, taken = bench.policy, bench.policy.load_weights

    def drop(weights: object, version: int) -> None:
        list(weights)
        policy.version = version

    policy.load_weights = drop
    try:
        sync(bench.learner, policy, bench.contract)
    except SyncError as error:
        return f"noticed: {str(error)[:60]}…"
    finally:
        policy.load_weights = taken
        taken(unique_weights(bench.model()), 0)
    raise Failed("a sampler without the new weights was not noticed")


def ahead(bench: Bench) -> str:
    """A rollout in another thread works on this rank's device while the learner trains."""

    def roll_out() -> tuple[torch.device, int]:
        rows, _ = sample(bench.policy, bench.size, 3)
        return bench.device, sum(len(row.logp_sampled) for row in rows)

    prefetch = Prefetch(roll_out)
    _update(bench, 3, fresh=False)
    device, tokens = prefetch.take()
    if device != bench.device:
        raise Failed(f"it worked on {device}, this rank's is {bench.device}")
    return f"{tokens:,} tokens on {device}"


def adapters(bench: Bench) -> str:
    """Adapters are trained and reach the sampler."""
    bench.learner, bench.contract = bench.make_learner(lora=True), bench.make_contract()
    sync(bench.learner, bench.policy, bench.contract)
    _update(bench, 1)
    metrics = sync(bench.learner, bench.policy, bench.contract)
    return f"gap {metrics['sync/logp_gap']:.1e} nats, {metrics['train/weights_changed']:.1%} changed"


def sleeping(bench: Bench) -> str:
    """The generator gives its memory back while the learner trains."""
    if not torch.cuda.is_available():
        raise Skipped("no GPU")
    awake = memory()
    bench.policy.sleep()
    asleep = memory()
    sync(bench.learner, bench.policy, bench.contract)
    return f"{awake:.1f} GiB awake, {asleep:.1f} asleep, {memory():.1f} awake again"


CHECKS: dict[str, Callable[[Bench], str]] = {
    "collectives": collectives,
    **{f"ZeRO-{stage}": zero(stage) for stage in (1, 2, 3)},
    "generation": generation,
    "transfer": transfer,
    "dropped transfer": dropped_transfer,
    "rollout ahead": ahead,
    "adapters": adapters,
    "sleep": sleeping,
}
"""In this order: later ones use what earlier ones made."""


def _update(bench: Bench, number: int, *, fresh: bool = True) -> None:
    if fresh:
        bench.rows, _ = sample(bench.policy, bench.size, number)
    advantage = np.random.default_rng(number).normal(size=len(bench.rows))
    bench.learner.update(bench.rows, advantage, update=number)


def run_checks(bench: Bench, report: Callable[[str, str, str, float], None]) -> None:
    """Runs every check on this rank; one that fails does not end the others.

    Args:
        bench: Of this rank.
        report: Called with name, outcome (passed, failed, skipped), figure and seconds of each.
    """
    join(TIMEOUT_S)
    channel = Channel(TIMEOUT_S)
    for name, check in CHECKS.items():
        began = time.perf_counter()
        try:
            outcome, figure = "passed", check(bench)
        except Skipped as reason:
            outcome, figure = "skipped", str(reason)
        except Exception as error:  # whatever it is: it is the result
            traceback.print_exc()
            outcome, figure = "failed", f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        report(name, outcome, figure, time.perf_counter() - began)
        channel.gather(outcome)
