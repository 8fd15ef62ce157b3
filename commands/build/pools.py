"""Where a run's environments play, as `env.workers` and `env.urls` say: here, in processes, or on servers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from configs.schema import EnvConfig
from envs.base import Env
from envs.pools.pool import EnvPool, LocalPool
from envs.pools.processes import ProcessPool
from envs.world import World
from envs.worlds import open_world, world_class

if TYPE_CHECKING:
    from envs.wire.description import Description


def open_pool(env: EnvConfig, world: World) -> EnvPool:
    """Opens the pool that a configuration names; `world` is its own.

    Raises:
        EnvError: Workers cannot start, or a server cannot be reached or plays something else.
    """
    if env.urls:
        from envs.pools.remote import RemotePool
        from envs.wire.messages import TOKEN_VARIABLE
        from serving.secret import read_token

        return RemotePool(
            env.urls,
            description(env),
            token=read_token(env.token_file and Path(env.token_file), TOKEN_VARIABLE),
            timeout=env.timeout_s,
            patience=env.patience_s,
        )
    return process_pool(env, env.workers) if env.workers else LocalPool(world.make_env)


def process_pool(env: EnvConfig, workers: int | None) -> ProcessPool:
    """Returns a pool of worker processes (None: one per core), each with a world of its own."""
    return ProcessPool(EnvMaker(env), workers)


@dataclass(frozen=True)
class EnvMaker:
    """Makes environments in a process that shares nothing with this one; opens the world there once."""

    env: EnvConfig

    def __call__(self) -> Env:
        """Makes one environment."""
        return _world(self.env.model_dump_json()).make_env()


@lru_cache(maxsize=1)
def _world(env: str) -> World:
    return open_world(EnvConfig.model_validate_json(env))


def description(env: EnvConfig) -> Description:
    """Says what is played, so that a client and a server can compare."""
    return world_class(env.name).description(env)
