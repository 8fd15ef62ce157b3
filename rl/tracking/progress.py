"""The progress shown on the terminal: one line per update, and a live panel for the current one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

_PHASES = ("rollout", "credit", "learner", "other")
_KL = {"train/kl_ref": "KL-ref", "train/kl_moved": "KL-moved"}
"""The column of the KL: to the reference, or without one from before the update to after it."""
_HEADER_EVERY = 25
_BAR = 28  # characters


class ProgressPanel:
    """Prints to the console given; plain lines where it is no terminal."""

    def __init__(self, updates: int, trajectories: int, console: Console | None = None) -> None:
        """Prints nothing yet.

        Args:
            updates: Of the run.
            trajectories: Of an update.
            console: Default: standard output.
        """
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._updates, self._trajectories = updates, trajectories
        self._update, self._phase, self._lines = 0, "", 0
        self._began = time.perf_counter()
        self._first: tuple[int, float] | None = None  # first update of this process, and when it began
        self._rollout: tuple[int, int] | None = None  # trajectories done, tokens sampled
        self._pace: float | None = None  # s per update of this process, evaluations included
        self._last: Mapping[str, float] = {}
        self._kl = "train/kl_moved"
        self._live: Live | None = None

    def stage(self, update: int, name: str) -> None:
        """Says what is being done now."""
        now = time.perf_counter()
        if name == "rollout":
            self._began, self._rollout = now, (0, 0)
            self._first = self._first or (update, now)
        self._update, self._phase = update, name
        if self._console.is_terminal and self._live is None:
            self._live = Live(
                get_renderable=self._panel, console=self._console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def trajectories(self, done: int, tokens: int) -> None:
        """Progress of a rollout; fits `agent.rollout.rollout.rollout(on_progress=…)`."""
        self._rollout = (done, tokens)

    def line(self, update: int, metrics: Mapping[str, float]) -> None:
        """One line about a finished update."""
        kl = "train/kl_ref" if "train/kl_ref" in metrics else self._kl
        if self._lines % _HEADER_EVERY == 0 or kl != self._kl:
            self._print(_header(_KL[kl]), style="bold")
        self._kl = kl
        self._lines += 1
        self._last = metrics
        if self._first is not None:
            self._pace = (time.perf_counter() - self._first[1]) / (update - self._first[0] + 1)
        self._print(_line(update, self._updates, metrics, kl, self._left(update)))

    def evaluated(self, update: int, metrics: Mapping[str, float]) -> None:
        """One line about an evaluation."""
        low, high = metrics.get("eval/success_lo"), metrics.get("eval/success_hi")
        interval = f" [{low:.1%}, {high:.1%}]" if low is not None and high is not None else ""
        tasks = f" of {metrics['eval/n']:.0f} tasks" if "eval/n" in metrics else ""
        tasks += f" × {metrics['eval/samples']:.0f} attempts" if "eval/samples" in metrics else ""
        success = f"success {metrics['eval/success']:.1%}{interval}{tasks}"
        self._print(f"{update:>4}/{self._updates:<4} evaluation: {success}")

    def say(self, text: str) -> None:
        """One sentence, e.g. a warning."""
        self._print(text)

    def close(self) -> None:
        """Ends the live panel."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _left(self, done: int) -> float | None:
        """Seconds the updates after `done` will take at this pace."""
        return None if self._pace is None else self._pace * (self._updates - done)

    def _panel(self) -> RenderableType:
        """The run's bar, the phase's, and where the last update's time went."""
        grid = Table.grid(padding=(0, 1))
        done = max(0, self._update - 1)
        success = self._last.get("rollout/success")
        shown = "" if success is None else f"success {success:.0%}  "
        left = self._left(done)
        shown += "" if left is None else f"{_clock(left)} left"
        grid.add_row(
            f"update {self._update}/{self._updates}", ProgressBar(self._updates, done, width=_BAR), shown
        )
        if self._phase == "rollout" and self._rollout is not None:
            trajectories, tokens = self._rollout
            rate = tokens / max(1e-9, time.perf_counter() - self._began)
            bar = ProgressBar(self._trajectories, trajectories, width=_BAR)
            grid.add_row(
                "rollout", bar, f"{trajectories}/{self._trajectories} trajectories  {rate:,.0f} tokens/s"
            )
        else:
            grid.add_row(self._phase, "", "")
        return Group(grid, _phases(self._last)) if self._last else grid

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False, highlight=False)


def _phases(metrics: Mapping[str, float]) -> Table:
    """A bar for each part of an update, as long as its share of the time, one after the other."""
    split = _split(metrics)
    total = max(1e-9, sum(split))
    grid, at = Table.grid(padding=(0, 1)), 0.0
    for name, seconds in zip(_PHASES, split, strict=True):
        bar = Bar(total, at, at + seconds, width=_BAR, color="cyan")
        grid.add_row(f"  {name}", bar, f"{seconds:.1f} s  {seconds / total:.0%}")
        at += seconds
    return grid


def _split(metrics: Mapping[str, float]) -> list[float]:
    """Seconds of each of `_PHASES`."""
    split = [metrics.get(f"time/{part}", 0.0) for part in _PHASES[:-1]]
    return [*split, max(0.0, metrics.get("time/update", 0.0) - sum(split))]


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f}s"
    return f"{minutes}min" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}"


def _header(kl: str) -> str:
    return (
        f"{'update':>9} {'success':>7} {'return':>6} {'mixed':>5} {'σ(A)':>6} {kl:>8} "
        f"{'entropy':>7} {'‖g‖':>7} {'sampled/s':>9} {'trained/s':>9} {'time':>6} {'left':>7}  "
        "rollout/credit/learn/other"
    )


def _line(update: int, updates: int, metrics: Mapping[str, float], kl: str, left: float | None) -> str:
    def show(name: str, form: str, width: int) -> str:
        value = metrics.get(name)
        return f"{'–' if value is None else format(value, form):>{width}}"

    return " ".join(
        [
            f"{update:>4}/{updates:<4}",
            show("rollout/success", ".1%", 7),
            show("rollout/return", ".2f", 6),
            show("rollout/mixed_groups", ".0%", 5),
            show("credit/advantage_std", ".3f", 6),
            show(kl, ".1e", 8),
            show("train/entropy", ".3f", 7),
            show("train/grad_norm", ".3g", 7),
            show("speed/rollout_tokens_per_s", ".0f", 9),
            show("speed/train_tokens_per_s", ".0f", 9),
            show("time/update", ".1f", 5) + "s",
            f"{'–' if left is None else _clock(left):>7}",
            " " + "/".join(f"{seconds:.1f}" for seconds in _split(metrics)),
        ]
    )
