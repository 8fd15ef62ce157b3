"""The process at the other end of a `ProcessPool`'s pipe: plays batches of requests one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple

from envs.base import Env, EnvError, Observation, Outcome, Task
from envs.pools.pool import LocalPool
from envs.pools.replies import Failure


class Request(NamedTuple):
    """One message to a worker.

    Attributes:
        what: "open" (plays `actions` too), "step", "fork", or "release".
        serial: The trajectory.
        position: Actions played once this is done, since the task's start.
        action: Of a step.
        source: Serial of the trajectory that is forked.
        task, seed, actions, checks: Of an opening.
    """

    what: Literal["open", "step", "fork", "release"]
    serial: int
    position: int = 0
    action: str = ""
    source: int = -1
    task: Task | None = None
    seed: int = 0
    actions: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()


class Answer(NamedTuple):
    """What became of a request; `checks` only of an opening."""

    serial: int
    position: int
    observation: Observation | None
    outcome: Outcome | None
    instruction: str
    checks: tuple[str, ...]
    failure: Failure | None


def work(connection: Connection, make_env: Callable[[], Env]) -> None:
    """Answers lists of requests until the pipe closes, as it does when the other end dies.

    The first message is "" once an environment could be made, or says why not.
    """
    # Ctrl-C reaches the whole group, but is the parent's to act upon; it closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        make_env().close()
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    pool = LocalPool(make_env)
    try:
        connection.send("")
        while True:
            connection.send(play(pool, connection.recv()))
    except (EOFError, ConnectionError):
        pool.close()


def play(pool: LocalPool, requests: list[Request]) -> list[Answer]:
    """Plays requests in order; every one but a release has an answer."""
    asked: dict[int, Request] = {}
    answers: list[Answer] = []
    for request in requests:
        if request.what == "release":
            pool.release(request.serial)
            continue
        try:
            _ask(pool, request)
            asked[request.serial] = request
        except EnvError as error:  # such as the fork of a trajectory that did not come back as it was
            failure = Failure("error", str(error))
            answers.append(Answer(request.serial, request.position, None, None, "", (), failure))
    for reply in pool.ready(0):
        request = asked[reply.key]
        checks = tuple(pool.checks(reply.key)) if request.what == "open" else ()
        answers.append(
            Answer(
                request.serial,
                request.position,
                reply.observation,
                reply.outcome,
                reply.instruction,
                checks,
                reply.failure,
            )
        )
    return answers


def _ask(pool: LocalPool, request: Request) -> None:
    if request.what == "open":
        pool.replay(request.serial, request.task, request.seed, request.actions, request.checks)
    elif request.what == "step":
        pool.step(request.serial, request.action)
    else:
        pool.fork(request.serial, request.source)
