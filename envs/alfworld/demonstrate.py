"""Walks of the search expert, with mistakes thrown in where asked for.

The expert alone never errs, so nothing shows an imitator the way back from a refused command. With
`mistakes`, a step is now and then somebody else's: a thing taken that is not there, a place gone to that does
not exist, an idle command. The expert then goes on from what came of it (as in DAgger, arXiv 1011.0686, but
with drawn mistakes in place of the learner's own).
"""

from __future__ import annotations

import random

from envs.alfworld.env import AlfworldEnv
from envs.alfworld.expert import SearchExpert
from envs.alfworld.games import Game
from envs.alfworld.goals import Goal, parse_goal
from envs.alfworld.layouts import stats
from envs.alfworld.memory import kind
from envs.demonstration import Demonstrated


def demonstrate(
    game: Game,
    *,
    seed: int = 0,
    noise: float = 0.0,
    mistakes: float = 0.0,
    max_steps: int = 50,
    use_admissible: bool = False,
) -> tuple[list[Demonstrated], bool]:
    """Lets a fresh expert play a game.

    Args:
        game: The game.
        seed: Of the expert's draws and the mistakes.
        noise: See `SearchExpert`.
        mistakes: Probability that a step is a mistake.
        max_steps: Step limit.
        use_admissible: See `SearchExpert`.

    Returns:
        The steps and whether the game was won in `max_steps`.
    """
    env = AlfworldEnv(max_steps=max_steps)
    expert = SearchExpert(seed=seed, noise=noise, use_admissible=use_admissible)
    rng = random.Random(f"alfworld mistakes {seed}")
    observation = env.reset(game)
    goal = parse_goal(env.instruction)
    expert.reset(env.instruction, observation)
    steps: list[Demonstrated] = []
    while True:
        action = expert.act(observation)
        step = Demonstrated(observation, expert.thought, action)
        if rng.random() < mistakes:
            step = Demonstrated(observation, *_mistake(rng, goal, expert.places), mistake=True)
        steps.append(step)
        outcome = env.step(step.action)
        if outcome.done:
            return steps, outcome.success
        observation = outcome.observation
        if step.mistake:
            expert.observe(step.action, observation)


def _mistake(rng: random.Random, goal: Goal, places: list[str]) -> tuple[str, str]:
    """Draws a thought and a command of the expert's form that the situation does not call for."""
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
