"""What a run plays in: the world that the section `env` of a configuration names."""

from __future__ import annotations

from commands.own_world import OwnWorld
from commands.world import World
from commands.world_alfworld import Alfworld
from commands.world_webshop import Webshop
from configs.schema import EnvConfig

WORLDS: dict[str, type[World]] = {"alfworld": Alfworld, "webshop": Webshop}
"""By the name in `env.name`; any other name is a world of the user's own."""


def kind_of_world(name: str) -> type[World]:
    """Returns what opens the world of that name, and describes it."""
    return WORLDS.get(name, OwnWorld)


def open_world(env: EnvConfig) -> World:
    """Opens the world that a configuration names.

    Raises:
        ConfigError: It is one of the user's own, and cannot be found or used.
    """
    return kind_of_world(env.name)(env)
