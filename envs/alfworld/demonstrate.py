"""Demonstrations by the search expert, with random mistakes if asked for, and the lessons made of it.

A mistake is taking a thing that is not there, going to a place that does not exist, or an idle command.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from configs.seeds import derive
from envs.alfworld.env import AlfworldEnv
from envs.alfworld.expert import SearchExpert
from envs.alfworld.games import Game
from envs.alfworld.generate import generate_games
from envs.alfworld.goals import Goal, parse_goal
from envs.alfworld.layouts import stats
from envs.alfworld.memory import kind
from envs.base import Observation
from envs.demonstration import Walk, record


def demonstrate(
    game: Game,
    *,
    seed: int = 0,
    noise: float = 0.0,
    mistakes: float = 0.0,
    max_steps: int = 50,
    use_admissible: bool = False,
) -> Walk:
    """Lets a fresh expert play a game.

    Args:
        game: The game.
        seed: Of the expert's draws and the mistakes.
        noise: See `SearchExpert`.
        mistakes: Probability that a step is a mistake.
        max_steps: Step limit.
        use_admissible: See `SearchExpert`.
    """
    env = AlfworldEnv(max_steps=max_steps)
    expert = SearchExpert(seed=seed, noise=noise, use_admissible=use_admissible)
    rng = random.Random(f"alfworld mistakes {seed}")
    first = env.reset(game)
    goal = parse_goal(env.instruction)
    expert.reset(env.instruction, first)

    def mistake(rng: random.Random, _: Observation) -> tuple[str, str]:
        return _mistake(rng, goal, expert.places)

    return record(env, first, expert, mistake, rng=rng, mistakes=mistakes)


def _mistake(rng: random.Random, goal: Goal, places: list[str]) -> tuple[str, str]:
    """Draws a wrong step: a thought and a command in the expert's form that do not fit the situation."""
    place = rng.choice(places)
    draw = rng.random()
    if draw < 0.4:
        thing = f"{goal.target} {rng.randint(1, 3)}"
        return f"take {thing} at {place}", f"take {thing} from {place}"
    if draw < 0.7:
        absent = sorted({name.lower() for name in stats()["can_contain"]} - {kind(p) for p in places})
        place = f"{rng.choice(absent)} 1"
    elif draw < 0.85:
        return f"find {goal.target} at {place}", f"examine {place}"
    return f"find {goal.target} at {place}", f"go to {place}"


@dataclass(frozen=True)
class AlfworldLessons:
    """Won walks on generated training games; see `envs.demonstration.Lessons`.

    Attributes:
        games: Games per shard.
        difficulty: Range of the games' difficulty, drawn once per shard.
        noise: Range of the expert's exploration noise, drawn once per game.
        mistakes: Range of the share of steps that are mistakes, drawn once per game.
        max_steps: Step limit of a walk; longer ones are left out.
    """

    games: int = 256
    difficulty: tuple[float, float] = (0.0, 1.0)
    noise: tuple[float, float] = (0.0, 1.0)
    mistakes: tuple[float, float] = (0.0, 0.7)
    max_steps: int = 40

    def __call__(self, seed: int, shard: int) -> Iterator[Walk]:
        """See `Lessons`."""
        rng = random.Random(derive(seed, "warmstart", "shard", shard))
        games = generate_games(
            "train",
            self.games,
            seed=derive(seed, "warmstart", "games", shard),
            difficulty=round(rng.uniform(*self.difficulty), 3),
        )
        for game in games:
            own, noise, mistakes = rng.getrandbits(32), rng.uniform(*self.noise), rng.uniform(*self.mistakes)
            walk = demonstrate(game, seed=own, noise=noise, mistakes=mistakes, max_steps=self.max_steps)
            if walk.outcome.success:
                yield walk
