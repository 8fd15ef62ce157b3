"""Steps per second of many environments: in this process, in worker processes, on a local server.

    python -m bench.envs [--games 16] [--steps 4000] [--sessions 10000] [--seed 0]

ALFWorld games of full size, groups of 8, commands drawn from the admissible ones, clients included. For each
number of environments: steps per second, the ratio to those in process, and CPU milliseconds per step of all
processes together. Wall-clock figures of a busy machine are low; ratios and CPU time are less so.
Then sessions are opened and closed on the server, and its memory and threads are compared. Last, worker
processes and one of two servers are killed (-9) while 64 trajectories are under way: seconds from there until
every trajectory has moved on.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx

from commands.build.pools import description
from commands.serve_environments import environment
from envs.alfworld import AlfworldEnv, Game
from envs.alfworld.generate import generate_games
from envs.pools.pool import EnvPool, LocalPool
from envs.pools.processes import ProcessPool, cores
from envs.pools.remote import RemotePool
from envs.wire.description import Description

ENVS = (1, 8, 64, 128, 512)
GROUP = 8
ROOT = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")


def main(argv: Sequence[str] | None = None) -> None:
    """Prints one line a pool and number of environments, then those about sessions."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4_000)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    games = generate_games("train", options.games, seed=options.seed, difficulty=1.0)
    make = partial(AlfworldEnv, max_steps=environment("alfworld", []).max_steps)
    print(f"{'envs':>6}{'pool':>22}{'steps/s':>12}{'ratio':>8}{'CPU ms per step':>16}")
    with _server("0") as own, _server(str(cores())) as many:
        pools: dict[str, Callable[[], EnvPool]] = {
            "in process": lambda: LocalPool(make),
            f"{cores()} processes": lambda: ProcessPool(make),
            "server": partial(_remote, own[1]),
            f"server, {cores()} processes": partial(_remote, many[1]),
        }
        for n in ENVS:
            base = 0.0
            for name, opened in pools.items():
                with opened() as pool:
                    speed, cpu = _speed(pool, games, n, options.steps if n > 1 else options.steps // 8)
                base = base or speed
                print(f"{n:6}{name:>22}{speed:12,.0f}{speed / base:8.2f}{cpu * 1e3:16.3f}", flush=True)
        _sessions(*own, games, options.sessions)
        with ProcessPool(make) as workers:
            _recovery("workers", workers, games, (partial(_kill_one, workers) for _ in range(20)))
        with ExitStack() as started:
            victims = [started.enter_context(_server("0")) for _ in range(3)]
            with RemotePool([own[1], *(url for _, url in victims)], _description()) as pool:
                kills = (partial(os.kill, pid, signal.SIGKILL) for pid, _ in victims)
                _recovery("servers", pool, games, kills)


@contextmanager
def _server(workers: str) -> Iterator[tuple[int, str]]:
    """Starts `run.py serve`; gives its process id and address."""
    command = [sys.executable, "run.py", "serve", "alfworld", "--port", "0", "--workers", workers]
    process = subprocess.Popen([*command, "--rate", "1e6"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        yield process.pid, re.search(r"http://\S+", process.stdout.readline())[0]
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def _description() -> Description:
    return description(environment("alfworld", []))


def _remote(url: str) -> RemotePool:
    return RemotePool([url], _description())


def _speed(pool: EnvPool, games: Sequence[Game], n: int, steps: int) -> tuple[float, float]:
    """Steps per second, and CPU seconds per step, of random walks in `n` environments; openings count too."""
    rngs = [random.Random(key) for key in range(n)]
    for key in range(n):
        pool.open(key, games[key // GROUP % len(games)], key)
    played, began, used = -2 * n, 0.0, 0.0  # the first steps warm everything up
    while played < steps:
        for reply in pool.ready():
            if reply.failure is not None:
                raise RuntimeError(reply.failure.message)
            if played < 0 <= played + 1:
                began, used = time.perf_counter(), _cpu()
            played += 1
            key, done = reply.key, reply.outcome is not None and reply.outcome.done
            if done:
                pool.release(key)
                pool.open(key, games[key // GROUP % len(games)], key)
            else:
                pool.step(key, rngs[key].choice(reply.observation.admissible))
    return played / (time.perf_counter() - began), (_cpu() - used) / played


def _cpu() -> float:
    """CPU seconds of this process and all that descend from it (Linux)."""
    used: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        used[int(folder.name)] = int(stat[1]), (int(stat[11]) + int(stat[12])) / _TICKS
    family = {os.getpid()}
    while more := {pid for pid, (parent, _) in used.items() if parent in family} - family:
        family |= more
    return sum(used[pid][1] for pid in family)


def _sessions(pid: int, url: str, games: Sequence[Game], n: int) -> None:
    """Opens and closes `n` sessions, 250 at a time, and prints what that leaves behind."""

    def some(count: int) -> None:
        with _remote(url) as pool:
            for first in range(0, count, 250):
                for key in range(250):
                    pool.open(key, games[(first + key) % len(games)], key)
                while pool.outstanding:
                    pool.ready()
                for key in range(250):
                    pool.release(key)

    some(max(250, n // 10))
    before = _size(pid)
    some(n)
    after = _size(pid)
    left = httpx.get(f"{url}/readyz").json()["sessions"]
    print(f"{n:,} sessions opened and closed, {left} left")
    for name, was, now in zip(("megabytes", "threads"), before, after, strict=True):
        print(f"{name:>12} {was:10.1f} before {now:10.1f} after")


def _kill_one(pool: ProcessPool) -> None:
    os.kill(pool.pids[0], signal.SIGKILL)


def _recovery(
    what: str, pool: EnvPool, games: Sequence[Game], kills: Iterable[Callable[[], None]], n: int = 64
) -> None:
    """Walks in `n` environments; after each kill waits until every one of them has moved on."""
    rng = random.Random(0)
    for key in range(n):
        pool.open(key, games[key // GROUP % len(games)], key)

    def everybody_moves() -> float:
        began, waiting = time.perf_counter(), set(range(n))
        while waiting:
            for reply in pool.ready():
                if reply.failure is not None:
                    raise RuntimeError(reply.failure.message)
                waiting.discard(reply.key)
                if reply.outcome is not None and reply.outcome.done:
                    pool.release(reply.key)
                    pool.open(reply.key, games[reply.key // GROUP % len(games)], reply.key)
                else:
                    pool.step(reply.key, rng.choice(reply.observation.admissible))
        return time.perf_counter() - began

    usual = sorted(everybody_moves() for _ in range(20))[10]
    seconds = []
    for kill in kills:
        kill()
        seconds.append(everybody_moves())
        everybody_moves()
    print(
        f"{len(seconds)} {what} killed: all {n} trajectories moved on within {max(seconds):.2f} s "
        f"(median {sorted(seconds)[len(seconds) // 2]:.2f}, undisturbed {usual:.2f})"
    )


def _size(pid: int) -> tuple[float, float]:
    """Resident megabytes and threads of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.M)[1]) for name in ("VmRSS", "Threads")}
    return found["VmRSS"] / 1e3, found["Threads"]


if __name__ == "__main__":
    main()
