"""Is a transfer of weights that goes wrong noticed? Planted faults, in bfloat16, at a learning rate of 1e-6.

    python -m bench.transfer_faults

Each fault is planted in a sampler that says it has the new weights. Said is after which update it is found,
by comparing bits (`agent.fingerprints`), by the contract (`rl.contract`) alone, and by a limit of 0.5 nats on
8 tokens alone. `-`: not in 20 updates. The table goes between `<!-- transfers -->` and `<!-- /transfers -->`
of its page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from agent.fingerprints import Fingerprints
from agent.policies.torch_policy import TorchPolicy
from bench.ranks import VOCAB, make_model, make_rows
from rl.contract import Contract
from rl.hand_over import hand_over
from rl.learner.engine import OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.lora import LoraOptions, add_adapters
from rl.learner.loss import LossOptions
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine
from rl.sync import SyncError, sync

PAGES = [Path(__file__).resolve().parent.parent / "docs" / name for name in ("gpu_evidence.md", "gpu.md")]
BLOCK = re.compile(r"(<!-- transfers -->\n).*?(<!-- /transfers -->)", re.DOTALL)
UPDATES, LEARNING_RATE, LIMIT = 20, 1e-6, 0.5

Named = tuple[str, torch.Tensor]


class Sampler(TorchPolicy):
    """Takes weights as it should; faults are planted in it.

    Attributes:
        lora: Whether the fault is one of adapters.
    """

    lora = False

    def __init__(self, model: nn.Module) -> None:
        """Has room for the probes of a contract."""
        super().__init__(model, [], window=128, max_parallel=32)
        self.transfers = 0

    def load_weights(self, weights: Iterable[Named], version: int) -> None:
        """The first transfer is right in every sampler."""
        kept = {name: weight.clone() for name, weight in weights}
        self.transfers += 1
        self.take(kept, version)

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Takes one transfer."""
        super().load_weights(weights.items(), version)

    def take_without(self, weights: dict[str, torch.Tensor], version: int, missed: str) -> None:
        """Takes all but the weights whose name contains `missed`; after the first transfer."""
        own = dict(self.held_weights())
        left = missed if self.transfers > 1 else "no weight's name"
        mixed = {name: own[name].clone() if left in name else w for name, w in weights.items()}
        super().load_weights(mixed.items(), version)


class Dropped(Sampler):
    """Transfers are dropped."""

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Only the version is new."""
        if self.transfers == 1:
            return super().take(weights, version)
        self.version = version


class NotMerged(Sampler):
    """Adapters are never merged."""

    lora = True

    def __init__(self, model: nn.Module) -> None:
        """As policies that hold no adapters."""
        super().__init__(model)
        self.takes_adapters = False

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """All that has an adapter stays what it was."""
        self.take_without(weights, version, "_proj")


class AdaptersDropped(Sampler):
    """Adapters beside the weights stay those of the first transfer."""

    lora = True

    def load_adapters(self, weights: Iterable[Named], version: int) -> None:
        """Only the version is new after that."""
        kept = [(name, weight.clone()) for name, weight in weights]
        if not self._adapters.held:
            return super().load_adapters(kept, version)
        self.version = version


class OneLayerMissed(Sampler):
    """One layer is missed."""

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """All but the second layer."""
        self.take_without(weights, version, ".layers.1.")


class StatesKept(Sampler):
    """The states of prompts are not dropped."""

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Rows keep their keys and values."""
        kept, self._drop = self._drop, lambda row: None
        super().take(weights, version)
        self._drop = kept


class OneUpdateLate(Sampler):
    """The weights are those of the update before."""

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """Takes what came before."""
        late, self._late = getattr(self, "_late", weights), weights
        super().take(late, version)


class HeadForgotten(Sampler):
    """The output layer is a copy of the embedding that nobody updates."""

    def take(self, weights: dict[str, torch.Tensor], version: int) -> None:
        """After the first transfer the two part."""
        super().take(weights, version)
        if self.transfers == 1:
            self._head = self._model.lm_head.weight.detach().clone()
        else:
            self._model.lm_head.weight = nn.Parameter(self._head, requires_grad=False)

    def load_weights(self, weights: Iterable[Named], version: int) -> None:
        """Ties them while weights are taken, as the check of names wants it."""
        self._model.lm_head.weight = self._model.get_input_embeddings().weight
        super().load_weights(weights, version)


FAULTS = {
    "none": Sampler,
    "transfers dropped": Dropped,
    "adapters never merged": NotMerged,
    "adapters beside the weights dropped": AdaptersDropped,
    "one layer missed": OneLayerMissed,
    "states of prompts kept": StatesKept,
    "weights of the update before": OneUpdateLate,
    "tied head forgotten": HeadForgotten,
}


def make_learner(*, lora: bool = False, dtype: str = "bfloat16") -> Learner:
    """A small learner."""
    model = make_model(dtype)
    if lora:
        add_adapters(model, LoraOptions(r=4, alpha=8.0))
    return Learner(
        TorchEngine(model, OptimOptions()),
        loss=LossOptions(),
        batches=BatchOptions(),
        lr=LearningRate(LEARNING_RATE),
        temperature=1.0,
        seed=0,
    )


def contract() -> Contract:
    """As runs in bfloat16 have it."""
    return Contract(np.random.default_rng(0).integers(0, VOCAB, 48).tolist(), 1.0, LIMIT)


def updates(learner: Learner, count: int) -> Iterator[int]:
    """Makes updates; yields the number of each."""
    rows = make_rows()
    for update in range(1, count + 1):
        advantage = np.random.default_rng(update).normal(size=rows[-1].spans[-1][2] + 1)
        learner.update(rows, advantage, update=update)
        yield update


def found_after(
    fault: type[Sampler], check: Callable[[Learner, Sampler], None], *, lora: bool, count: int = UPDATES
) -> int | None:
    """The first update after which `check` raises a SyncError; None: it never does."""
    learner = make_learner(lora=lora)
    sampler = fault(make_model("bfloat16"))
    check(learner, sampler)
    for update in updates(learner, count):
        try:
            check(learner, sampler)
        except SyncError:
            return update
    return None


def bits(learner: Learner, sampler: Sampler) -> None:
    """Hands weights over and compares bits."""
    sync(learner, sampler)


def only(one: Contract, *, limit_alone: bool = False) -> Callable[[Learner, Sampler], None]:
    """Hands weights over and looks at log-probabilities alone."""

    def check(learner: Learner, sampler: Sampler) -> None:
        hand_over(learner, sampler, Fingerprints(sampler.dtype))
        metrics, fault = one.check(learner, sampler)
        if metrics["sync/logp_gap"] > LIMIT if limit_alone else fault:
            raise SyncError(fault or "beyond the limit")

    return check


def table() -> str:
    """Plants every fault; returns the Markdown table."""
    lines = [("planted", "bits", "contract alone", "limit alone"), ("---", "---:", "---:", "---:")]
    for name, fault in FAULTS.items():
        checks = (bits, only(contract()), only(contract(), limit_alone=True))
        found = [found_after(fault, check, lora=fault.lora) for check in checks]
        lines.append((name, *("-" if one is None else str(one) for one in found)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Writes the table."""
    made = table()
    print(made, end="")
    for page in PAGES:
        if page.exists() and BLOCK.search(text := page.read_text(encoding="utf-8")):
            page.write_text(BLOCK.sub(lambda found: found[1] + made + found[2], text), encoding="utf-8")
            return
    raise SystemExit("no page has <!-- transfers --> … <!-- /transfers -->: put them where it should go")


if __name__ == "__main__":
    main()
