"""Speed and memory of WebShop: steps, searches, open sessions, and how all of it grows with the shop.

    python -m bench.webshop [--products 1000] [--sizes 1000 10000] [--full] [--seed 0]

Generated shops, one core; CPU time, so that other work on the machine does not count. `--full` grows to
200,000 products (minutes). The columns: seconds to import a shop into a folder; its size; its synthetic
goals; seconds in which a process opens the shop for the first time, which draws prices, limits and order;
seconds in which a second process opens it and searches once, while the first has it open; the second's
resident memory after it has drawn 1,000 goals and played each (pages of mapped files, which processes share,
count in each); milliseconds per search for an instruction.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.alfworld_engine import _resident
from envs.base import fill
from envs.webshop.catalogue import Catalogue
from envs.webshop.env import WebshopEnv
from envs.webshop.generate import NOUN_SOURCE, generate_products, generated_catalogue
from envs.webshop.goals import Goal
from envs.webshop.shop import open_shop
from envs.webshop.store import write_store

FULL_SIZES = (1_000, 10_000, 50_000, 200_000)
SESSIONS = 64
QUERIES = 100
DRAWN = 1_000
STEPS = 15


def main(argv: Sequence[str] | None = None) -> None:
    """Prints one line per figure, then one per size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--products", type=int, default=1_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--full", action="store_true", help=f"sizes {', '.join(map(str, FULL_SIZES))}")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        _one_shop(Path(folder) / "shop", options.products, options.seed)
        heads = (
            "products",
            "import s",
            "MB",
            "goals",
            "first s",
            "start s",
            "worker MB",
            "ms/search",
            "95 %",
        )
        print("".join(f"{head:>12}" for head in heads))
        for n in FULL_SIZES if options.full else options.sizes:
            print(_growth(Path(folder) / f"shop-{n}", n, options.seed), flush=True)


def _one_shop(folder: Path, n: int, seed: int) -> None:
    """Prints steps per second, milliseconds per search and megabytes of sessions with `n` products."""
    shop = open_shop(generated_catalogue(n, seed=seed), seed=seed)
    write_store(folder, shop.catalogue.products(), noun_source=NOUN_SOURCE)
    env = WebshopEnv(shop, max_steps=STEPS)
    rng = random.Random(seed)
    steps, seconds = 0, 0.0
    for goal in shop.goals[:200]:
        played, took = _walk(env, goal, rng)
        steps, seconds = steps + played, seconds + took
    print(f"step            {steps / seconds:9,.0f} steps/s, {seconds / steps * 1e3:.2f} ms each")
    took = _search_seconds(shop.catalogue, [goal.instruction for goal in shop.goals[:QUERIES]])
    print(f"search          {statistics.median(took) * 1e3:9.2f} ms (median of {len(took)}, {n:,} products)")
    grown, before = _fresh(_session_megabytes, folder, seed)
    print(f"{SESSIONS} sessions     {grown:9.1f} MB, in a process of {before:.1f} MB")


def _walk(env: WebshopEnv, goal: Goal, rng: random.Random) -> tuple[int, float]:
    """Searches for the instruction, then clicks at random; returns steps and CPU seconds they took."""
    observation, steps, done = env.reset(goal), 0, False
    began = time.process_time()
    while not done:
        outcome = env.step(fill(rng.choice(observation.admissible), env.instruction))
        observation, done = outcome.observation, outcome.done
        steps += 1
    return steps, time.process_time() - began


def _search_seconds(catalogue: Catalogue, queries: Sequence[str]) -> list[float]:
    took = []
    for query in queries:
        began = time.process_time()
        catalogue.search(query.lower().split(" "))
        took.append(time.process_time() - began)
    return took


def _fresh(work: Callable[..., tuple[float, ...]], *arguments: object) -> tuple[float, ...]:
    """Runs in a new process: in this one, memory that was freed would be used again and not count."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


def _session_megabytes(folder: Path, seed: int) -> tuple[float, float]:
    """Growth of this process while sessions are opened and played half through; and its size before."""
    shop = open_shop(Catalogue.open(folder), seed=seed)
    _walk(WebshopEnv(shop, max_steps=STEPS), shop.goals[0], random.Random(seed))  # imports, caches
    before = _resident()
    envs = [WebshopEnv(shop, max_steps=STEPS) for _ in range(SESSIONS)]
    rng = random.Random(seed)
    for env, goal in zip(envs, shop.goals, strict=False):
        observation = env.reset(goal)
        for _ in range(STEPS // 2):
            outcome = env.step(fill(rng.choice(observation.admissible), env.instruction))
            if outcome.done:
                break
            observation = outcome.observation
    return (_resident() - before) / 1e6, before / 1e6


def _growth(folder: Path, n: int, seed: int) -> str:
    """One line of the table."""
    began = time.process_time()
    write_store(folder, generate_products(n, seed=seed), noun_source=NOUN_SOURCE)
    imported = time.process_time() - began
    size = sum(file.stat().st_size for file in folder.iterdir()) / 1e6
    began = time.process_time()
    shop = open_shop(Catalogue.open(folder), seed=seed)
    first = time.process_time() - began
    start, megabytes, *took = _fresh(_worker, folder, seed)
    slow = statistics.quantiles(took, n=20)[-1]
    seconds = f"{first:12.2f}{start:12.2f}{megabytes:12.1f}"
    search = f"{statistics.median(took) * 1e3:12.2f}{slow * 1e3:12.2f}"
    return f"{n:12,}{imported:12.2f}{size:12.1f}{len(shop.goals):12,}{seconds}{search}"


def _worker(folder: Path, seed: int) -> tuple[float, ...]:
    """Seconds to open a shop and search once, megabytes after `DRAWN` goals, seconds of each search."""
    began = time.process_time()
    shop = open_shop(Catalogue.open(folder), seed=seed)
    goals = shop.of_split("train")
    shop.catalogue.search(goals[0].instruction.lower().split(" "))
    start = time.process_time() - began
    rng = random.Random(seed)
    drawn = [goals[rng.randrange(len(goals))] for _ in range(DRAWN)]
    env = WebshopEnv(shop, max_steps=STEPS)
    for goal in drawn:
        _walk(env, goal, rng)
    took = _search_seconds(shop.catalogue, [goal.instruction for goal in drawn[:QUERIES]])
    return start, _resident() / 1e6, *took


if __name__ == "__main__":
    main()
