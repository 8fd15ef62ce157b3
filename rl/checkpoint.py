"""Checkpoints to resume from: ordinary Hugging Face folders with the training state beside the weights.

`checkpoints/NNNN/` holds config.json, model.safetensors and the tokenizer (load it anywhere with
`from_pretrained`), the engine's optimiser state, and `trainer.pt`. A folder appears under its name only
when it is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from rl.learner import Learner

STATE_FILE = "trainer.pt"
_MISSING = "(absent)"
_WHERE_ENVS_PLAY = ("env.workers", "env.urls", "env.token_file", "env.timeout_s", "env.patience_s")
_WHERE_RESPONSES_ARE_MADE = tuple(
    f"generator.{option}"
    for option in ("memory", "eager", "urls", "token_file", "transfer", "folder", "timeout_s", "checksum")
)
_FREE = (
    "logging.", "checkpoint.", "threads", "eval.every", "train.timeout_s", "train.token_budget",
    *_WHERE_ENVS_PLAY, *_WHERE_RESPONSES_ARE_MADE,
)  # fmt: skip


class CheckpointError(ValueError):
    """A checkpoint cannot be used; the message says what to change."""


@dataclass(slots=True)
class TrainState:
    """Where a run stands, weights and optimiser apart.

    Attributes:
        update: Updates done.
        best: Best evaluation so far: `{"eval/success": …, "update": …}`, empty before the first.
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
        self, folder: Path, *, keep: int, tokenizer: PreTrainedTokenizerBase, config: Mapping[str, Any]
    ) -> None:
        """Creates no folder before there is something to write.

        Args:
            folder: Where the checkpoints go.
            keep: Newest ones kept, ≥ 1.
            tokenizer: Saved beside the weights.
            config: The run's configuration as plain nested mappings; a resume under another is refused.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self._folder, self._keep, self._tokenizer, self._config = folder, keep, tokenizer, config

    def latest(self) -> Path | None:
        """The newest complete checkpoint, None if there is none."""
        found = self._complete()
        return found[-1] if found else None

    def save(self, learner: Learner, state: TrainState) -> Path:
        """Writes `NNNN` for `state.update`, then deletes all but the newest `keep`.

        Everything is written into a hidden folder first and renamed when complete, so a crash leaves
        either the whole checkpoint or none.
        """
        engine = learner.engine
        path = self._folder / f"{state.update:04d}"
        partial = self._folder / f".{path.name}.partial"
        weights = dict(engine.named_weights())  # every rank takes part in gathering
        if engine.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            logging.disable_progress_bar()  # it would tear the live line
            engine.model.save_pretrained(partial, state_dict=weights)
            self._tokenizer.save_pretrained(partial)
            document = {**asdict(state), "version": learner.version, "config": dict(self._config)}
            torch.save(document, partial / STATE_FILE)
        engine.reduce([0.0], "sum")  # the folder exists on every rank from here on
        engine.save(partial)
        engine.reduce([0.0], "sum")
        if engine.rank == 0:
            if path.exists():
                shutil.rmtree(path)
            partial.rename(path)
            for old in self._complete()[: -self._keep]:
                shutil.rmtree(old)
        return path

    def restore(self, path: Path, learner: Learner) -> TrainState:
        """Loads weights, optimiser and version into `learner`.

        Raises:
            CheckpointError: the checkpoint is of another configuration (all differences are listed), or
                not complete.
        """
        if not (path / STATE_FILE).is_file():
            raise CheckpointError(f"{path} is not a checkpoint: it has no {STATE_FILE}")
        document = torch.load(path / STATE_FILE, weights_only=True)
        differences = config_differences(document["config"], self._config)
        if differences:
            raise CheckpointError(
                f"{path} was written under another configuration; resume with the same, or start anew:\n  "
                + "\n  ".join(differences)
            )
        model = learner.engine.model
        saved = type(model).from_pretrained(path, dtype=model.dtype)
        learner.engine.load_weights(saved.state_dict())
        learner.engine.load(path)
        learner.version = document["version"]
        names = {one.name for one in fields(TrainState)}
        return TrainState(**{name: value for name, value in document.items() if name in names})

    def _complete(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        found = [p for p in self._folder.iterdir() if p.name.isdigit() and (p / STATE_FILE).is_file()]
        return sorted(found, key=lambda p: int(p.name))


def config_differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Lists the options that differ and would make a resumed run another run.

    Free to differ: logging, checkpoints, threads, how often to evaluate; and the number of updates as
    long as the learning rate does not depend on it (a constant schedule).

    Returns:
        Lines `key: saved → now`, sorted by key.
    """
    before, after = _flat(saved), _flat(now)
    free = _FREE + (("train.updates",) if after.get("train.lr_schedule") == "constant" else ())
    lines = []
    for key in sorted({*before, *after}):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old != new and not key.startswith(free):
            lines.append(f"{key}: {old} → {new}")
    return lines


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = list(value) if isinstance(value, tuple) else value
    return flat
