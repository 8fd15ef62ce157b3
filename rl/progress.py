"""What a person sees of a run: a line an update, and on a terminal a live line about the one in progress."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console
from rich.status import Status

_HEADER = (
    f"{'update':>9} {'success':>7} {'return':>6} {'mixed':>5} {'σ(A)':>6} {'KL':>8} {'entropy':>7} "
    f"{'‖g‖':>7} {'sampled/s':>9} {'trained/s':>9} {'time':>6}  rollout/credit/learn/other"
)
_HEADER_EVERY = 25


class Progress:
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
        self._update, self._lines = 0, 0
        self._began = time.perf_counter()
        self._status: Status | None = None

    def stage(self, update: int, name: str) -> None:
        """Says what is being done now (terminal only)."""
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        if name == "rollout":
            self._began = time.perf_counter()
        self._update = update
        self._status.update(f"update {update}/{self._updates}: {name}")

    def trajectories(self, done: int, tokens: int) -> None:
        """Progress of a rollout; fits `agent.rollout.rollout(on_progress=…)`."""
        if self._status is not None:
            rate = tokens / max(1e-9, time.perf_counter() - self._began)
            self._status.update(
                f"update {self._update}/{self._updates}: rollout, {done}/{self._trajectories} trajectories, "
                f"{tokens} tokens, {rate:.0f}/s"
            )

    def line(self, update: int, metrics: Mapping[str, float]) -> None:
        """One line about a finished update."""
        if self._lines % _HEADER_EVERY == 0:
            self._print(_HEADER, style="bold")
        self._lines += 1
        self._print(_line(update, self._updates, metrics))

    def evaluated(self, update: int, metrics: Mapping[str, float]) -> None:
        """One line about an evaluation."""
        low, high = metrics.get("eval/success_lo"), metrics.get("eval/success_hi")
        interval = f" [{low:.1%}, {high:.1%}]" if low is not None and high is not None else ""
        tasks = f" of {metrics['eval/n']:.0f} tasks" if "eval/n" in metrics else ""
        success = f"success {metrics['eval/success']:.1%}{interval}{tasks}"
        self._print(f"{update:>4}/{self._updates:<4} evaluation: {success}")

    def say(self, text: str) -> None:
        """One sentence, e.g. a warning."""
        self._print(text)

    def close(self) -> None:
        """Ends the live line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _print(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False, highlight=False)


def _line(update: int, updates: int, metrics: Mapping[str, float]) -> str:
    def show(name: str, form: str, width: int) -> str:
        value = metrics.get(name)
        return f"{'–' if value is None else format(value, form):>{width}}"

    split = [metrics.get(f"time/{part}", 0.0) for part in ("rollout", "credit", "learner")]
    split.append(max(0.0, metrics.get("time/update", 0.0) - sum(split)))
    return " ".join(
        [
            f"{update:>4}/{updates:<4}",
            show("rollout/success", ".1%", 7),
            show("rollout/return", ".2f", 6),
            show("rollout/mixed_groups", ".0%", 5),
            show("credit/advantage_std", ".3f", 6),
            show("train/kl_ref" if metrics.get("train/kl_ref") else "train/kl_sampled", ".1e", 8),
            show("train/entropy", ".3f", 7),
            show("train/grad_norm", ".3g", 7),
            show("speed/rollout_tokens_per_s", ".0f", 9),
            show("speed/train_tokens_per_s", ".0f", 9),
            show("time/update", ".1f", 5) + "s",
            " " + "/".join(f"{seconds:.1f}" for seconds in split),
        ]
    )
