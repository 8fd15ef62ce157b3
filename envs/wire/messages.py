"""What travels between a client and an environment server: JSON, checked at both ends by these models.

A *position* counts the actions of a trajectory since its task's start. Every request says which position it
leads to, so a request that is sent twice is played once.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from envs.base import Observation, Outcome
from serving.messages import Name, Text, Wire

PROTOCOL = 1
TOKEN_VARIABLE = "SIBLING_ENV_TOKEN"
"""Environment variable of the token, on both sides."""

BATCH = 1024
"""Most requests of one kind in a batch."""

HEADER = "Sibling-Environment"
"""Request header: fingerprint of the environment the client means; another one is refused (412)."""


Position = Annotated[int, Field(ge=0, le=10**9)]


class TaskName(Wire):
    """A task, by its id and a digest of all that decides how it plays."""

    id: Text = Field(max_length=1000)
    digest: Text = Field(max_length=128)


class Opening(Wire):
    """Starts a session, and plays `actions` in it; `checks` are digests its first replies have to repeat."""

    session: Name
    task: TaskName
    seed: int = Field(0, ge=0, lt=2**64)
    actions: list[Text] = []
    checks: list[Text] = []

    @property
    def position(self) -> int:
        """Where this leads to."""
        return len(self.actions)


class Fork(Wire):
    """Starts a session as a copy of `source`, which has to be at `position`."""

    session: Name
    source: Name
    position: Position


class Stepping(Wire):
    """Plays an action, after which the session is at `position`."""

    session: Name
    position: Position
    action: Text


class Batch(Wire):
    """Requests, done in the order open, fork, step, close; an unknown name in `close` is no error."""

    open: list[Opening] = Field([], max_length=BATCH)
    fork: list[Fork] = Field([], max_length=BATCH)
    step: list[Stepping] = Field([], max_length=BATCH)
    close: list[Name] = Field([], max_length=4 * BATCH)


class Trouble(Wire):
    """Why one request of a batch was not done.

    `unknown_session` (closed, expired, or lost: open it again with its actions), `unknown_task` (upload it),
    `moved` (it is at another position), `full`, `draining`, `refused` (other data); or the session is over:
    `error` (the environment raised), `lost`, `timeout`, `diverged` (it did not repeat its checks).
    """

    reason: str
    message: str


class Played(Wire):
    """What became of one request: `trouble`, or `outcome` of the last action, or a first `observation`."""

    session: str
    position: int
    observation: Observation | None = None
    outcome: Outcome | None = None
    instruction: str = ""
    checks: tuple[str, ...] = ()
    trouble: Trouble | None = None


class Answer(Wire):
    """One `Played` for every opening, fork and step, in that order and in that of the batch."""

    played: list[Played]


class GameContent(Wire):
    """A task that travels whole, such as an ALFWorld game; uploaded once."""

    id: Text
    family: Text
    split: Text
    goal: Text
    pddl_problem: Text
    pddl_domain: Text | None = None
    grammar: Text | None = None


class Upload(Wire):
    """Tasks a server does not have."""

    games: list[GameContent] = Field(max_length=BATCH)


class Stored(Wire):
    """Number of tasks taken from an upload."""

    stored: int


answers: TypeAdapter[Answer] = TypeAdapter(Answer)
