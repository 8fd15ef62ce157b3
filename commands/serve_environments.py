"""`run.py serve`: environments over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from commands.build.pools import description, process_pool
from configs.load import load
from configs.schema import EnvConfig
from configs.text import ConfigError
from configs.worlds import WORLDS
from envs.pools.pool import LocalPool
from envs.server.app import SessionLimits
from envs.server.env_server import serve
from envs.wire.messages import TOKEN_VARIABLE
from envs.worlds import open_world
from serving.address import Address
from serving.secret import read_token


def run(
    what: str,
    overrides: Sequence[str],
    *,
    address: Address,
    workers: int | None,
    limits: SessionLimits,
    token_file: Path | None,
    drain_seconds: float,
) -> None:
    """Serves until a signal.

    Args:
        what: An experiment whose environment is meant; a world's name stands for its CPU preset.
        overrides: `env.key=value`.
        workers: Processes that play (None: one per core; 0: the server's own).

    Raises:
        ConfigError: See `environment`.
        ServingError, EnvError: See `envs.server.env_server.serve`.
    """
    env = environment(what, overrides)
    token = read_token(token_file, TOKEN_VARIABLE)
    world = open_world(env)
    pool = LocalPool(world.make_env) if workers == 0 else process_pool(env, workers)
    serve(
        pool,
        world.task_book(),
        description(env),
        address=address,
        limits=limits,
        token=token,
        drain_seconds=drain_seconds,
    )


def environment(what: str, overrides: Sequence[str]) -> EnvConfig:
    """Returns the environment section of an experiment; a world's name stands for its CPU preset.

    Raises:
        ConfigError: There is no such experiment, or an override is not of the section `env`.
    """
    strange = [item for item in overrides if not item.startswith("env.")]
    if strange:
        raise ConfigError(f"a server has the options env.… only, got {strange[0]!r}")
    return load(f"{what}_cpu" if what in WORLDS else what, overrides).config.env
