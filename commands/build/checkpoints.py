"""Chooses the checkpoint of a run to evaluate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from configs.load import load_run
from configs.text import ConfigError
from eval.best import Choice, best_of, checkpoints, choice
from eval.runfolder import RunFolder


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint of a run.

    Attributes:
        path: Its folder.
        update: Number of updates before it.
        best: How it was chosen as the best; None for the newest.
        chosen_on: The split it was chosen on, if it is the best.
    """

    path: Path
    update: int
    best: Choice | None = None
    chosen_on: str = ""

    def __str__(self) -> str:
        """Returns one line that names it."""
        if self.best is None:
            return f"newest checkpoint, after update {self.update}: {self.path}"
        return (
            f"best checkpoint, after update {self.update}: {self.path}, chosen by {self.best.metric} "
            f"({self.best.value:.3f} on {self.chosen_on})"
        )


def newest(run_dir: Path) -> Checkpoint:
    """Returns a run's newest checkpoint.

    Raises:
        ConfigError: The run has no checkpoint yet.
    """
    update, path = next(reversed(_all(run_dir).items()))
    return Checkpoint(path, update)


def best(run_dir: Path) -> Checkpoint:
    """Returns the checkpoint that a run keeps as its best.

    Raises:
        ConfigError: The run keeps no best one, or has no checkpoint yet.
    """
    found, chosen = _all(run_dir), choice(run_dir)
    if chosen is None or chosen.update not in found:
        there = ", ".join(path.name for path in found.values())
        raise ConfigError(
            f"{run_dir} keeps no best checkpoint: train it with checkpoint.keep_best=eval/success and "
            f"eval.every. There are: {there} (without --best the newest is evaluated)"
        )
    return Checkpoint(found[chosen.update], chosen.update, chosen, load_run(run_dir).config.eval.split)


def splits(run_dir: Path, checkpoint: Checkpoint, split: str) -> str:
    """Returns one line on which split a best checkpoint was chosen, and on which it is reported."""
    if split != checkpoint.chosen_on:
        return f"chosen on {checkpoint.chosen_on}, reported on {split}"
    found = best_of(RunFolder.read(run_dir))
    much = f" (by about {found.flattery:.3f})" if found is not None and found.flattery is not None else ""
    return (
        f"chosen and reported on {split}: that flatters{much}; report it on a split it was not chosen on "
        "(eval.split=…)"
    )


def _all(run_dir: Path) -> dict[int, Path]:
    found = checkpoints(run_dir)
    if not found:
        raise ConfigError(
            f"{run_dir} has no checkpoint yet: train further, or evaluate the experiment itself"
        )
    return found
