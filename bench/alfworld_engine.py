"""Speed of the ALFWorld engine, compared in the same run with the reference engine's, if that is installed.

    python -m bench.alfworld_engine [--games 40] [--reference-steps 20] [--seed 0]

Full-size kitchens, one core; CPU time, so that other work on the machine does not count. Commands are
drawn from the admissible ones, which are listed at each step. `make setup-reference` installs the
reference engine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from envs.alfworld import AlfworldEnv, Game, compile_game
from envs.alfworld.game import GOAL_MARK, packaged_text
from envs.alfworld.generate import generate_games

KITCHEN = ("pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep")
STEPS = 50
LIVE = 128
GROUP = 8


def main(argv: Sequence[str] | None = None) -> None:
    """Prints one line per figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=40)
    parser.add_argument("--reference-steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    games = generate_games("train", max(2 * options.games, LIVE), seed=options.seed, families=KITCHEN)
    # Making a game solves it, which compiles it: under another sentence it is compiled anew.
    unseen = [replace(game, goal=f"{game.goal} now") for game in games[: options.games]]
    loads = [_seconds(lambda game=game: compile_game(game)) for game in unseen]
    print(f"load            {statistics.median(loads) * 1e3:9.1f} ms per game (median of {len(loads)})")
    first = _steps_per_second(games[: options.games], options.seed)
    print(f"step            {first:9,.0f} steps/s in the first trajectory of a game")
    group = [game for game in games[-options.games :] for _ in range(GROUP)]
    speed = _steps_per_second(group, options.seed + 1)
    print(f"                {speed:9,.0f} steps/s in a group of {GROUP} trajectories")
    print(f"snapshot+restore{_snapshot_seconds(games[0]) * 1e6:9.1f} µs")
    # A process of its own: in this one, memory that earlier figures freed would be used again and not count.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        print(f"{LIVE} games live  {fresh.submit(_live_megabytes, games[:LIVE]).result():9.1f} MB")
    if importlib.util.find_spec("textworld") is None:
        print("reference       not installed (`make setup-reference`)")
        return
    reset, slow = _reference(games[0], options.reference_steps, options.seed)
    print(f"reference       {slow:9.1f} steps/s, load and reset {reset * 1e3:,.0f} ms")
    loading = reset / statistics.median(loads)
    print(f"ratio           {first / slow:9,.0f} × in steps, {loading:,.0f} × in loading")


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _steps_per_second(games: Sequence[Game], seed: int) -> float:
    """A random walk through each game; the clock runs for the steps alone."""
    env, rng = AlfworldEnv(max_steps=STEPS), random.Random(seed)
    steps, seconds = 0, 0.0
    for game in games:
        observation = env.reset(game)
        began = time.process_time()
        done = False
        while not done:
            outcome = env.step(rng.choice(observation.admissible))
            observation, done = outcome.observation, outcome.done
            steps += 1
        seconds += time.process_time() - began
    return steps / seconds


def _snapshot_seconds(game: Game, times: int = 10_000) -> float:
    env = AlfworldEnv()
    observation = env.reset(game)
    env.step(observation.admissible[0])

    def work() -> None:
        for _ in range(times):
            env.restore(env.snapshot())

    return _seconds(work) / times


def _live_megabytes(games: Sequence[Game]) -> float:
    """Growth of this process while all games are compiled and each has been played for some steps."""
    before = _resident()
    envs = [AlfworldEnv(max_steps=STEPS) for _ in games]
    rng = random.Random(0)
    for env, game in zip(envs, games, strict=True):
        observation = env.reset(game)
        for _ in range(STEPS // 2):
            outcome = env.step(rng.choice(observation.admissible))
            if outcome.done:
                break
            observation = outcome.observation
    return (_resident() - before) / 1e6


def _resident() -> int:
    """Resident memory of this process in bytes (Linux; elsewhere 0)."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def _reference(game: Game, steps: int, seed: int) -> tuple[float, float]:
    """Seconds to load and reset the game in the reference engine, and its steps per second."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs import PddlEnv

    body = {
        "pddl_domain": game.pddl_domain or packaged_text("alfred.pddl"),
        "grammar": (game.grammar or packaged_text("alfred.twl2")).replace(GOAL_MARK, game.goal),
        "pddl_problem": game.pddl_problem,
        "solvable": True,
        "walkthrough": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.tw-pddl"
        path.write_text(json.dumps(body), encoding="utf-8")
        env = AlfredInfos(
            AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
        )
        began = time.process_time()
        env.load(str(path))
        state = env.reset()
        loaded = time.process_time() - began
        rng = random.Random(seed)
        began = time.process_time()
        for _ in range(steps):
            state, _, _ = env.step(rng.choice(sorted(state["admissible_commands"])))
        return loaded, steps / (time.process_time() - began)


if __name__ == "__main__":
    main()
