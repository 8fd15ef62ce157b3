"""Demonstrations by the buyer of `expert.py`, with random mistakes if asked for, and the lessons made of it.

A mistake is clicking what the page does not have, opening another product, going back, or a vague search.
A mistake never buys, because a purchase ends the trajectory.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from configs.seeds import derive
from envs.base import Observation
from envs.demonstration import Walk, record
from envs.webshop.env import WebshopEnv
from envs.webshop.expert import Buyer
from envs.webshop.generate import generated_catalogue
from envs.webshop.goals import Goal
from envs.webshop.pages import BUY
from envs.webshop.reading import parse_wish
from envs.webshop.shop import Ids, Shop, open_shop


def demonstrate(
    shop: Shop,
    goal: Goal,
    *,
    seed: int = 0,
    noise: float = 0.0,
    mistakes: float = 0.0,
    max_steps: int = 15,
    show_instruction: bool = True,
) -> Walk:
    """Lets a fresh buyer shop for a goal.

    Args:
        shop: The shop.
        goal: What to buy.
        seed: Of the buyer's draws, the mistakes and the random listing.
        noise: See `Buyer`.
        mistakes: Probability that a step is a mistake.
        max_steps: Step limit.
        show_instruction: See `WebshopEnv`.
    """
    env = WebshopEnv(shop, max_steps, show_instruction=show_instruction)
    expert = Buyer(seed=seed, noise=noise, max_steps=max_steps)
    rng = random.Random(f"webshop mistakes {seed}")
    first = env.reset(goal, seed)
    expert.reset(goal.instruction)

    def mistake(rng: random.Random, observation: Observation) -> tuple[str, str]:
        return _mistake(rng, goal.instruction, observation)

    return record(env, first, expert, mistake, rng=rng, mistakes=mistakes)


def _mistake(rng: random.Random, instruction: str, observation: Observation) -> tuple[str, str]:
    """Draws a wrong step: a thought and an action in the buyer's form that do not fit the situation."""
    buy = f"click[{BUY.lower()}]"
    clicks = [action for action in observation.admissible if action.startswith("click[") and action != buy]
    words = parse_wish(instruction).words or ("shop",)
    draw = rng.random()
    if not clicks:  # the start page
        query = rng.choice(words)
        return f"find {query}", f"search[{query}]"
    if draw < 0.5:
        word = rng.choice(words)
        return f"choose {word}", f"click[{word}]"
    action = rng.choice(clicks)
    return f"try {action[6:-1]}", action


@dataclass(frozen=True)
class WebshopLessons:
    """Walks that end with a full score, each shard in a new generated shop; see `envs.demonstration.Lessons`.

    Attributes:
        products: Of each shop.
        walks: Goals per shard, drawn from all of the shop's.
        difficulty: Range of the shop's difficulty, drawn once per shard.
        results_a_page: Range of that option of the shop, both ends included, drawn once per shard.
        ids: See `Shop`.
        noise: Range of the buyer's haste and carelessness, drawn once per walk.
        mistakes: Range of the share of steps that are mistakes, drawn once per walk.
        max_steps: Step limit of a walk.
        show_instruction: See `WebshopEnv`.
    """

    products: int = 500
    walks: int = 384
    difficulty: tuple[float, float] = (0.0, 0.6)
    results_a_page: tuple[int, int] = (1, 5)
    ids: Ids = "rank"
    noise: tuple[float, float] = (0.0, 1.0)
    mistakes: tuple[float, float] = (0.0, 0.5)
    max_steps: int = 15
    show_instruction: bool = False

    def __call__(self, seed: int, shard: int) -> Iterator[Walk]:
        """See `Lessons`."""
        rng = random.Random(derive(seed, "warmstart", "shard", shard))
        own = derive(seed, "warmstart", "shop", shard)
        difficulty, results = round(rng.uniform(*self.difficulty), 3), rng.randint(*self.results_a_page)
        catalogue = generated_catalogue(self.products, seed=own, difficulty=difficulty)
        shop = open_shop(catalogue, seed=own, results_a_page=results, ids=self.ids)
        for goal in rng.sample(shop.goals, min(self.walks, len(shop.goals))):
            walk = demonstrate(
                shop,
                goal,
                seed=rng.getrandbits(32),
                noise=rng.uniform(*self.noise),
                mistakes=rng.uniform(*self.mistakes),
                max_steps=self.max_steps,
                show_instruction=self.show_instruction,
            )
            if walk.outcome.success:
                yield walk
