"""Visits of the small shop, action by action, without the environment around them."""

from __future__ import annotations

from envs.webshop.actions import act, clickables
from envs.webshop.pages import page, plain_text, rich_text
from envs.webshop.state import State
from tests.envs.webshop.small_shop import goal_of, small_shop

SHOP = small_shop()
MUG = goal_of(SHOP, "B000000001")


class Visit:
    """Plays actions; `refused` tells of the last one."""

    def __init__(self, goal=MUG, shop=SHOP, attributes=False, seed=0):
        self.shop, self.attributes, self.refused = shop, attributes, False
        self.state = State(goal, seed, "7")

    def do(self, *actions):
        for action in actions:
            state = act(self.shop, self.state, self.targets, action)
            self.refused = state is None
            self.state = state or self.state
        return self

    @property
    def parts(self):
        return page(self.shop, self.state, self.attributes)

    @property
    def targets(self):
        return clickables(self.parts)

    @property
    def text(self):
        return plain_text(self.parts)

    @property
    def rich(self):
        return rich_text(self.parts, self.state)

    @property
    def place(self):
        return self.state.place


def at_mug():
    return Visit().do("search[blue stone]", "click[b000000001]")


def at_gift(**options):
    return Visit(**options).do("search[gift]", "click[b000000003]")
