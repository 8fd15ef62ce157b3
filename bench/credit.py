"""Speed of credit assignment: rows per second and memory, over sizes of an update.

    python -m bench.credit [--full] [--methods grpo gigpo …] [--steps 30] [--seed 0]

Groups of eight, half of the trajectories succeed, 60 places with 4 actions each; one core, CPU time, so that
other work on the machine does not count. SCPO gets the scores of its text pairs from a dictionary, so what
is timed is everything but the scorer. The ratio is to the size before, four times smaller: 4 is linear.
Memory is what the method allocates beside its table at the peak. `--full` adds 32,768 trajectories.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np

from credit.pipeline import CreditResult, Pipeline
from credit.table import StepTable

SIZES = (128, 512, 2048, 8192)
FULL = (*SIZES, 32768)
GROUP, PLACES, ACTIONS = 8, 60, 4
METHODS = {
    "grpo": {"returns": {}, "grpo": {}},
    "gigpo": {"returns": {}, "gigpo": {}},
    "hgpo": {"returns": {}, "hgpo": {"history": 2}},
    "graphgpo": {"returns": {}, "graphgpo": {}, "gigpo": {}},
    "scpo": {"returns": {}, "scpo": {}, "gigpo": {}},
}


class Dictionary:
    """A pair scorer that knows its answers: the first time it draws them, from then on it looks them up."""

    canonical = None

    def __init__(self, seed: int) -> None:
        self._known: dict[tuple[str, str], float] = {}
        self._rng = np.random.default_rng(seed)

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """float [len(pairs)] in [0, 1]."""
        known = self._known
        unknown = [pair for pair in pairs if pair not in known]
        known.update(zip(unknown, self._rng.random(len(unknown)).tolist(), strict=True))
        return np.fromiter(map(known.__getitem__, pairs), dtype=np.float64, count=len(pairs))


def make_table(trajectories: int, steps: int, seed: int) -> StepTable:
    """An update of `trajectories` × `steps` rows that walks over places at random."""
    rng = np.random.default_rng(seed)
    k, t = np.repeat(np.arange(trajectories), steps), np.tile(np.arange(steps), trajectories)
    success = rng.random(trajectories) < 0.5
    places = [
        f"You arrive at shelf {i}. On the shelf {i}, you see a cup {i}, and a bowl 1." for i in range(PLACES)
    ]
    actions = [f"take cup {i} from shelf {i}" for i in range(ACTIONS)]
    where = rng.integers(0, PLACES, len(k) + 1)
    return StepTable(
        group=k // GROUP,
        trajectory=k,
        t=t,
        reward=10.0 * (success[k] & (t == steps - 1)),
        outcome=10.0 * success[k],
        success=success[k],
        anchor=[places[i] for i in where[:-1]],
        action=[actions[i] for i in rng.integers(0, ACTIONS, len(k))],
    )


def measure(method: Pipeline, table: StepTable, services: dict[str, object]) -> tuple[float, float]:
    """CPU seconds of a run (best of two), and bytes allocated at the peak of another."""

    def run() -> CreditResult:
        return method.run(table, services)

    run()  # the dictionary learns, caches of the table fill
    seconds = min(_seconds(run) for _ in range(2))
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, float(peak)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main(argv: Sequence[str] | None = None) -> None:
    """Prints one line per method and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="32,768 trajectories as well")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    print(
        f"{'method':<10}{'trajectories':>13}{'rows':>10}{'seconds':>10}{'ratio':>7}{'rows/s':>12}{'MB':>8}{'B/row':>7}"
    )
    for name in options.methods:
        before = None
        for size in FULL if options.full else SIZES:
            table = make_table(size, options.steps, options.seed)
            seconds, peak = measure(
                Pipeline.from_config(METHODS[name], name), table, {"pair_scorer": Dictionary(options.seed)}
            )
            ratio = f"{seconds / before:.1f}" if before else ""
            rows = len(table)
            print(
                f"{name:<10}{size:>13,}{rows:>10,}{seconds:>10.4f}{ratio:>7}{rows / seconds:>12,.0f}"
                f"{peak / 1e6:>8.1f}{peak / rows:>7.0f}",
                flush=True,
            )
            before = seconds


if __name__ == "__main__":
    main()
