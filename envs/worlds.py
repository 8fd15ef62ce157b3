"""Opens worlds by the name in `env.name`: the built-in ones (`configs.worlds`) and a user's own."""

from __future__ import annotations

import importlib

from configs.worlds import WORLDS
from envs.own_world import OwnWorld, find_class
from envs.world import Section, World


def world_class(name: str) -> type[World]:
    """Returns the class of the world of that name.

    Raises:
        ConfigError: It is a user's own, and cannot be found or used.
    """
    if name in WORLDS:
        module, _, cls = WORLDS[name].partition(":")
        return getattr(importlib.import_module(module), cls)
    own = find_class(name)
    return own if issubclass(own, World) else OwnWorld


def open_world(env: Section) -> World:
    """Opens the world that a configuration names.

    Raises:
        ConfigError: It cannot be found or used, or an option does not fit.
    """
    return world_class(env.name)(env)


def noun_of(name: str | None) -> str:
    """Returns what the tasks of a recorded run's world are called; its file need not be there any more."""
    return world_class(name).noun if name in WORLDS else World.noun
