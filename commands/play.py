"""`run.py play|random-agent`: an environment without a policy."""

from __future__ import annotations

import random
import time

from rich.console import Console

from configs.schema import EnvConfig
from configs.seeds import derive
from envs.base import fill
from envs.worlds import open_world
from eval.statistics import wilson


def play(env_config: EnvConfig, split: str, *, seed: int, among: int | None = None) -> None:
    """Lets a human play one task in the terminal, drawn from `among` of a split (None: all)."""
    world = open_world(env_config)
    tasks = world.tasks(split, among)
    task = tasks[random.Random(derive(seed, "play")).randrange(len(tasks))]
    env = world.make_env()
    observation = env.reset(task, seed)
    console = Console(highlight=False)
    steps = env_config.max_steps
    console.print(f"[bold]{task.family}[/], at most {steps} steps. `?` lists the commands, `quit` ends.\n")
    console.print(observation.text, markup=False)
    for t in range(steps):
        while (command := console.input(f"[bold cyan]{t}>[/] ").strip()) == "?":
            console.print("\n".join(observation.admissible), style="dim", markup=False)
        if command == "quit":
            return
        outcome = env.step(command)
        observation = outcome.observation
        console.print(observation.text, markup=False)
        if outcome.success:
            console.print(f"[bold green]Solved in {t + 1} steps.[/]")
            return
        if outcome.terminated:
            console.print(f"[bold yellow]Over, with a score of {outcome.score:.2f}.[/]")
            return
    console.print("[bold red]Out of steps.[/]")


def random_agent(env_config: EnvConfig, split: str, n: int, *, seed: int) -> None:
    """Plays `n` tasks with uniformly drawn admissible commands and prints what that achieves.

    Where words have to be filled in (a search), they are those of the task.
    """
    world = open_world(env_config)
    tasks = world.tasks(split, n)
    env = world.make_env()
    successes, score, steps, started = 0, 0.0, 0, time.monotonic()
    for task in tasks:
        rng = random.Random(derive(seed, "random-agent", task.id))
        observation = env.reset(task, derive(seed, "env", task.id))
        while True:
            outcome = env.step(fill(rng.choice(observation.admissible), env.instruction))
            observation, steps = outcome.observation, steps + 1
            if outcome.done:
                successes, score = successes + outcome.success, score + outcome.score
                break
    low, high = wilson(successes, len(tasks))
    speed = steps / (time.monotonic() - started)
    print(
        f"random agent: success {successes / len(tasks):.2f} [{low:.2f},{high:.2f}], score "
        f"{score / len(tasks):.2f} on {len(tasks)} tasks, {steps / len(tasks):.1f} steps per task, "
        f"{speed:,.0f} steps/s"
    )
