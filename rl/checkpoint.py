"""Checkpoints to resume from: ordinary Hugging Face folders with the training state beside the weights.

`checkpoints/NNNN/` holds config.json, model.safetensors and the tokenizer (load it anywhere with
`from_pretrained`), the engine's optimiser state, and `trainer.pt`. With adapters the weights are merged, and
`adapter/` holds the adapters by themselves, as peft writes and reads them. A folder appears under its name
only when it is complete. Where the best is kept, `best.json` says which it was when the folder was written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from agent.ranks import Alone, Ranks
from configs.errors import UserError
from configs.resuming import config_differences
from rl.learner.engine import STATE_FILE, Engine, StateError
from rl.learner.learner import Learner
from rl.learner.lora import load_adapters, save_adapters

ADAPTER_FOLDER, BEST_FILE = "adapter", "best.json"


class CheckpointError(UserError, ValueError):
    """A checkpoint cannot be used; the message says what to change."""


@dataclass(slots=True)
class TrainState:
    """Where a run stands, weights and optimiser apart.

    Attributes:
        update: Updates done.
        best: Best evaluation so far: `{"eval/success": …, "update": …, "since": …}`, empty before the first;
            the metric is the one that the best is kept by, `since` the update of the first one it was chosen
            among.
        extra_tasks: Tasks rolled out beyond `Play.groups` an update, for groups that filters dropped.
        credit: What credit stages keep from update to update: `CreditResult.state`, JSON values.
    """

    update: int = 0
    best: dict[str, float] = field(default_factory=dict)
    extra_tasks: int = 0
    credit: dict[str, Any] = field(default_factory=dict)


class Checkpoints:
    """The folder `checkpoints/` of a run."""

    def __init__(
        self,
        folder: Path,
        *,
        keep: int,
        tokenizer: PreTrainedTokenizerBase,
        config: Mapping[str, Any],
        keep_best: str | None = None,
        upgrade: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
        ranks: Ranks | None = None,
    ) -> None:
        """Creates no folder before there is something to write.

        Args:
            folder: Where the checkpoints go; the same for every rank, on a disk that all see.
            keep: Newest ones kept, ≥ 1.
            tokenizer: Saved beside the weights.
            config: The run's configuration as plain nested mappings; a resume under another is refused.
            keep_best: Metric; the checkpoint of the evaluation where it was highest stays too.
            upgrade: Gives a configuration of an older version the options it lacked.
            ranks: Of the run, a channel of their own (`Engine.channel`); None is a run of one process.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self._folder, self._keep, self._tokenizer, self._config = folder, keep, tokenizer, config
        self._upgrade = upgrade
        self.keep_best = keep_best
        self._ranks = ranks or Alone()

    def latest(self) -> Path | None:
        """The newest complete checkpoint, None if there is none; rank 0 looks, so all ranks agree."""
        return self._ranks.share(next(reversed(self._complete()), None))

    def save(self, learner: Learner, state: TrainState) -> Path:
        """Writes `NNNN` for `state.update`, then deletes all but the newest `keep` and, if kept, the best.

        Everything is written into a hidden folder first and renamed when complete, so a crash leaves
        either the whole checkpoint or none. Every rank writes its part of the optimiser's state; rank 0 the
        rest, for which it takes the weights into main memory one by one.
        """
        engine, ranks = learner.engine, self._ranks
        if engine.world_size != ranks.size:
            raise ValueError(f"an engine of {engine.world_size} ranks, but a channel of {ranks.size}")
        path = self._folder / f"{state.update:04d}"
        partial = self._folder / f".{path.name}.partial"
        weights = _on_rank_0(engine.named_weights(), engine.rank)
        adapters = _on_rank_0(engine.adapter_weights(), engine.rank)
        if ranks.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            logging.disable_progress_bar()  # it would tear the live line
            engine.model.save_pretrained(partial, state_dict=weights)
            if adapters:
                save_adapters(engine.model, partial / ADAPTER_FOLDER, adapters)
            self._tokenizer.save_pretrained(partial)
            document = {**asdict(state), "version": learner.version, "config": dict(self._config)}
            torch.save(document, partial / STATE_FILE)
            if self.keep_best in state.best:
                (partial / BEST_FILE).write_text(json.dumps(self._best(state)) + "\n", encoding="utf-8")
        ranks.gather(None)  # the folder is there, for every rank, from here on
        engine.save(partial)
        ranks.gather(None)
        if ranks.rank == 0:
            if path.exists():
                shutil.rmtree(path)
            partial.rename(path)
            best = state.best["update"] if self.keep_best in state.best else None
            for old in self._complete()[: -self._keep]:
                if int(old.name) != best:
                    shutil.rmtree(old)
        return path

    def _best(self, state: TrainState) -> dict[str, Any]:
        """The content of `best.json`."""
        best = state.best
        whole = {"update": int(best["update"]), "since": int(best["since"])}
        return {"metric": self.keep_best, "value": best[self.keep_best]} | whole

    def restore(self, path: Path, learner: Learner) -> TrainState:
        """Loads weights, optimiser and version into `learner`.

        The number of ranks may be another one than when it was written. A best evaluation by another metric
        than `keep_best`, or whose checkpoint is not there, is forgotten: the best is chosen anew.

        Raises:
            CheckpointError: the checkpoint is of another configuration (all differences are listed), not
                complete, or of a kind that this engine cannot take.
        """
        if not (path / STATE_FILE).is_file():
            raise CheckpointError(f"{path} is not a checkpoint: it has no {STATE_FILE}")
        document = torch.load(path / STATE_FILE, weights_only=True)
        differences = config_differences(self._upgrade(document["config"]), self._config)
        if differences:
            raise CheckpointError(
                f"{path} was written under another configuration; resume with the same, or start anew:\n  "
                + "\n  ".join(differences)
            )
        engine = learner.engine
        if (path / ADAPTER_FOLDER).is_dir():
            engine.load_weights(load_adapters(path / ADAPTER_FOLDER))
        else:
            engine.load_weights(_saved_weights(path, engine.model))
        try:
            engine.load(path)
        except StateError as error:
            raise CheckpointError(str(error)) from error
        if (path / ADAPTER_FOLDER).is_dir():
            self._check_base(path, engine)
        learner.version = document["version"]
        names = {one.name for one in fields(TrainState)}
        state = TrainState(**{name: value for name, value in document.items() if name in names})
        return state if self.keep_best is None else replace(state, best=self._kept(state.best))

    def _kept(self, best: Mapping[str, float]) -> dict[str, float]:
        """The best evaluation, if it was chosen by the same metric and its checkpoint is there."""
        there = {int(path.name) for path in self._ranks.share(self._complete())}
        kept = self.keep_best in best and best["update"] in there
        return {"since": 0.0, **best} if kept else {}

    def _check_base(self, path: Path, engine: Engine) -> None:
        """Raises a CheckpointError unless the frozen weights are those the adapters were trained on."""
        saved, wrong = _SavedWeights(path), ""
        for name, weight in engine.named_weights():
            if engine.rank == 0 and not wrong and not _same(weight.cpu(), saved[name]):
                wrong = name
        if wrong := self._ranks.share(wrong):
            raise CheckpointError(
                f"{path} holds adapters of another model than the one loaded now: with them, {wrong} is not "
                "what it was. Have the files of model.path changed since the run began?"
            )

    def _complete(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        found = [p for p in self._folder.iterdir() if p.name.isdigit() and (p / STATE_FILE).is_file()]
        return sorted(found, key=lambda p: int(p.name))


class _SavedWeights(Mapping[str, torch.Tensor]):
    """The weights in a folder of safetensors, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        self._files = {}
        for file in sorted(path.glob("*.safetensors")):
            opened = safe_open(file, framework="pt")
            self._files |= dict.fromkeys(opened.keys(), opened)

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._files[name].get_tensor(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _saved_weights(path: Path, model: PreTrainedModel) -> Mapping[str, torch.Tensor]:
    """The weights in `path` by the names of `model`."""
    saved = _SavedWeights(path)
    if all(name in saved for name, _ in model.named_parameters()):
        return saved
    # Some architectures are laid out otherwise in files than in memory; the library knows how to turn them.
    return type(model).from_pretrained(path, dtype=model.dtype).state_dict()


def _on_rank_0(weights: Iterator[tuple[str, torch.Tensor]], rank: int) -> dict[str, torch.Tensor]:
    """Takes part in gathering all weights; keeps them, in main memory, on rank 0 only."""
    return {name: weight.to("cpu") for name, weight in weights if rank == 0}


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal but for the rounding of another device."""
    rtol = 1e-5 if a.dtype == torch.float32 else 2e-2
    return torch.allclose(a.float(), b.float(), rtol=rtol, atol=1e-5)
