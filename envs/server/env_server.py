"""Runs an environment server until a signal: then it takes no new sessions, and ends with the open ones."""

from __future__ import annotations

from envs.base import EnvError
from envs.pools.pool import EnvPool
from envs.server.app import SessionLimits, make_app
from envs.server.session_metrics import SessionMetrics
from envs.server.sessions import Sessions
from envs.wire.description import Description
from envs.wire.messages import TOKEN_VARIABLE
from envs.wire.task_book import TaskBook
from serving.address import Address, check_token, listen
from serving.errors import ServingError
from serving.running import run_until_signal


def serve(
    pool: EnvPool,
    book: TaskBook,
    environment: Description,
    *,
    address: Address,
    limits: SessionLimits,
    token: str | None,
    drain_seconds: float = 30.0,
) -> None:
    """Serves until a signal; closes the pool.

    Raises:
        ServingError: It would listen to other machines without a token, or the address is taken.
        EnvError: Its pool failed.
    """
    check_token(address, token, TOKEN_VARIABLE)
    metrics = SessionMetrics()
    sessions = Sessions(pool, book, limit=limits.sessions, idle_seconds=limits.idle_seconds, metrics=metrics)
    app = make_app(sessions, book, environment, limits=limits, metrics=metrics, token=token)
    try:
        listener = listen(address)
    except ServingError:
        pool.close()
        raise
    if not run_until_signal(app, sessions, listener, environment.name, address, drain_seconds):
        raise EnvError("the environment workers failed; see the messages above.")
