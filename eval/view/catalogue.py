"""Which runs there are below a folder, and how each of them is doing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from eval.report.alarms import FILE as ALARMS
from eval.report.alarms import Raised, read_alarms
from eval.report.effects import Effect, effects
from eval.report.report_plots import SUCCESS
from eval.result import EvalError, EvalResult
from eval.runfolder import RunFolder

State = Literal["running", "finished", "stopped", "unreadable"]
Check = Callable[[Path], str | None]
QUIET = 120.0
"""Seconds without a new file after which a run counts as stopped; longer where its updates take longer."""
_DEPTH = 3


class UnknownRun(LookupError):
    """No such run below the folder that is shown."""


@dataclass(frozen=True)
class RunCard:
    """A run at a glance.

    Attributes:
        id: Its folder, relative to the folder shown, with `/`.
        state: `running` while files still appear, `finished` when all updates are made.
        name: Of the experiment.
        method: Credit method.
        env: Environment.
        seed: Of the run.
        updates: Made so far.
        total: Wanted, None if the configuration does not say.
        curve: Success of the trajectories of each update.
        before: Evaluation of the starting policy.
        after: Latest evaluation of a trained policy.
        changed: When a file last appeared, seconds since the epoch.
        seconds_left: Estimate for a running run, None if unknown.
        effects: What each stage of the method changed in the advantage.
        alarms: What it has raised.
        problem: Why it cannot be read, or not wholly; "" if it can.
    """

    id: str
    state: State
    changed: float
    name: str = "?"
    method: str = "?"
    env: str = "?"
    seed: int | None = None
    updates: int = 0
    total: int | None = None
    curve: Sequence[float] = ()
    before: EvalResult | None = None
    after: EvalResult | None = None
    seconds_left: float | None = None
    effects: Sequence[Effect] = ()
    alarms: Sequence[Raised] = ()
    problem: str = ""

    @property
    def progress(self) -> float:
        """Share of the updates made, in [0, 1]."""
        return min(self.updates / self.total, 1.0) if self.total else 0.0


class Catalogue:
    """The runs below a folder. A run is read again only when one of its files changed."""

    def __init__(self, root: Path, check: Check = lambda _: None, clock: Callable[[], float] = time.time):
        """Reads nothing yet.

        Args:
            root: Folder of run folders; they may lie deeper, as those of a sweep.
            check: Returns what is wrong with a run's configuration, None if nothing.
            clock: Seconds since the epoch.
        """
        self.root = root.resolve()
        self._check, self._clock = check, clock
        self._cards: dict[str, tuple[Any, RunCard]] = {}

    def cards(self) -> list[RunCard]:
        """Returns all runs, those that changed last first."""
        cards = [self.card(run) for run in _find(self.root, self.root, _DEPTH)]
        return sorted(cards, key=lambda card: (-card.changed, card.id))

    def path(self, run: str) -> Path:
        """Returns the folder of a run by its id.

        Raises:
            UnknownRun: there is none, or it is not below the folder shown.
        """
        try:
            path = (self.root / run).resolve()
            if path != self.root and path.is_relative_to(self.root) and _is_run(path):
                return path
        except (OSError, ValueError):  # no name a file could have
            pass
        raise UnknownRun(f"there is no run {run!r} in {self.root.name}/")

    def card(self, run: str) -> RunCard:
        """Returns one run; one that cannot be read says why instead of its figures."""
        path = self.path(run)
        stamp = _stamp(path)
        known = self._cards.get(run)
        # a file that could not be read may only have been half written
        if known is None or known[0] != stamp or known[1].state == "unreadable":
            self._cards[run] = known = (stamp, self._read(run, path, stamp))
        return _aged(known[1], self._clock())

    def _read(self, run: str, path: Path, stamp: Sequence[tuple[str, int]]) -> RunCard:
        changed = max((time for _, time in stamp), default=0) / 1e9
        try:
            folder = RunFolder.read(path)
            figures = _figures(folder)
        except (EvalError, OSError, AttributeError, TypeError, ValueError) as error:
            return RunCard(run, "unreadable", changed, problem=f"cannot be read: {error}")
        problems = [self._check(path), _cut_off(path / "metrics.jsonl")]
        return RunCard(run, "running", changed, **figures, problem=" ".join(filter(None, problems)))


def _figures(run: RunFolder) -> dict[str, Any]:
    total = run.get("train.updates")
    times = run.series("time/update")[1]
    left = (total - run.updates) * sum(times) / len(times) if total and times else None
    return {
        "name": str(run.get("name") or run.path.name),
        "method": run.method,
        "env": str(run.get("env.name") or "?"),
        "seed": run.get("seed"),
        "updates": run.updates,
        "total": total,
        "curve": run.series(SUCCESS)[1],
        "before": run.before,
        "after": run.after,
        "seconds_left": left,
        "effects": effects(run.metrics),
        "alarms": read_alarms(run.path),
    }


def _cut_off(metrics: Path) -> str | None:
    """What is lost of a file of lines whose last one was never finished."""
    text = metrics.read_bytes() if metrics.is_file() else b""
    if not text or text.endswith(b"\n"):
        return None
    lost = len(text) - text.rfind(b"\n") - 1
    return f"The last line of metrics.jsonl is cut off: its {lost} bytes are left out."


def _aged(card: RunCard, now: float) -> RunCard:
    """The card with the state it has by now: silence ends a run that has not made all its updates."""
    if card.state == "unreadable":
        return card
    per_update = card.seconds_left / (card.total - card.updates) if card.seconds_left else 0.0
    if card.total and card.updates >= card.total:
        state: State = "finished"
    else:
        state = "running" if now - card.changed < max(QUIET, 5 * per_update) else "stopped"
    return replace(card, state=state)


def _find(root: Path, folder: Path, depth: int) -> Iterator[str]:
    """Yields the ids of the runs below `folder`; nothing inside a run counts as a run."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:  # gone, or not ours to read
        return
    for entry in entries:
        path = Path(entry.path)
        if not entry.is_dir() or not path.resolve().is_relative_to(root):
            continue
        if _is_run(path):
            yield path.relative_to(root).as_posix()
        elif depth > 1 and not entry.name.startswith("."):
            yield from _find(root, path, depth - 1)


def _is_run(path: Path) -> bool:
    return (path / "metrics.jsonl").is_file() or (path / "trajectories").is_dir() or _is_config(path)


def _is_config(path: Path) -> bool:
    """A run's config.json; a model's lies beside its weights."""
    return (path / "config.json").is_file() and not list(path.glob("*.safetensors"))


def _stamp(path: Path) -> tuple[tuple[str, int], ...]:
    """Changes whenever a file of the run does, as far as the card is concerned."""
    watched = ("config.json", "metrics.jsonl", "eval", "trajectories", "checkpoints", "sources.json", ALARMS)
    return tuple((name, (path / name).stat().st_mtime_ns) for name in watched if (path / name).exists())
