"""Walks of the buyer of `expert.py`, with mistakes thrown in where asked for.

A mistake is a step the situation does not call for: something clicked that the page does not have, another
product opened, a way back taken, a vague search. It never buys, since nothing comes after that. The buyer
then goes on from what came of it.
"""

from __future__ import annotations

import random

from envs.base import Observation, Outcome
from envs.demonstration import Demonstrated
from envs.webshop.env import WebshopEnv
from envs.webshop.expert import SearchExpert
from envs.webshop.goals import Goal
from envs.webshop.pages import BUY
from envs.webshop.reading import parse_wish, read_page
from envs.webshop.shop import Shop


def demonstrate(
    shop: Shop,
    goal: Goal,
    *,
    seed: int = 0,
    noise: float = 0.0,
    mistakes: float = 0.0,
    max_steps: int = 15,
    show_instruction: bool = True,
) -> tuple[list[Demonstrated], Outcome]:
    """Lets a fresh buyer shop for a goal.

    Args:
        shop: The shop.
        goal: What to buy.
        seed: Of the buyer's draws, the mistakes and the random listing.
        noise: See `SearchExpert`.
        mistakes: Probability that a step is a mistake.
        max_steps: Step limit.
        show_instruction: See `WebshopEnv`.

    Returns:
        The steps and the last outcome, with success and score.
    """
    env = WebshopEnv(shop, max_steps, show_instruction=show_instruction)
    expert = SearchExpert(seed=seed, noise=noise, max_steps=max_steps)
    rng = random.Random(f"webshop mistakes {seed}")
    observation = env.reset(goal, seed)
    expert.reset(goal.instruction)
    steps: list[Demonstrated] = []
    while True:
        action = expert.act(observation)
        step = Demonstrated(observation, expert.thought, action)
        if rng.random() < mistakes:
            step = Demonstrated(observation, *_mistake(rng, goal.instruction, observation), mistake=True)
        steps.append(step)
        outcome = env.step(step.action)
        if outcome.done:
            return steps, outcome
        observation = outcome.observation
        if step.mistake:
            expert.observe(step.action, observation)


def _mistake(rng: random.Random, instruction: str, observation: Observation) -> tuple[str, str]:
    """Draws a thought and an action of the buyer's form that the situation does not call for."""
    clicks = [action for action in observation.admissible if action.startswith("click[")]
    clicks = [action for action in clicks if action != f"click[{BUY.lower()}]"]
    words = parse_wish(instruction).words or ("shop",)
    draw = rng.random()
    if not clicks or (draw < 0.2 and read_page(observation).place == "start"):
        query = " ".join(rng.sample(words, 1))
        return f"find {query}", f"search[{query}]"
    if draw < 0.5:
        word = rng.choice(words)
        return f"choose {word}", f"click[{word}]"
    action = rng.choice(clicks)
    return f"try {action[6:-1]}", action
