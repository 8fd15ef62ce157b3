"""The server's HTTP interface; its schema is at /openapi.json, to be read at /docs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Header
from fastapi.responses import JSONResponse, Response

from envs.base import EnvError
from envs.server.session_metrics import SessionMetrics
from envs.server.sessions import Sessions
from envs.wire.description import Description, Hello
from envs.wire.messages import BATCH, HEADER, Answer, Batch, Stored, Upload, answers
from envs.wire.task_book import TaskBook
from serving.running import make_server_app


@dataclass(frozen=True)
class SessionLimits:
    """What a server lets clients do.

    Attributes:
        sessions: Open at once.
        idle_seconds: Time after which a session that nobody asks for is closed.
        body: Most bytes of a request.
        rate: Most requests per second and client address.
    """

    sessions: int = 4096
    idle_seconds: float = 600.0
    body: int = 32 * 2**20
    rate: float = 2000.0


def make_app(
    sessions: Sessions,
    book: TaskBook,
    environment: Description,
    *,
    limits: SessionLimits,
    metrics: SessionMetrics,
    token: str | None = None,
) -> FastAPI:
    """Returns the application; it starts the sessions, and closes them at the end."""

    app = make_server_app(
        sessions,
        title=f"Sibling environment server: {environment.name}",
        version=str(environment.protocol),
        description=__doc__,
        metrics=metrics,
        token=token,
        body=limits.body,
        rate=limits.rate,
    )

    def mismatch(fingerprint: str | None) -> Response | None:
        if fingerprint in (None, environment.fingerprint):
            return None
        detail = "another environment is played here; GET /v1/environment says which"
        return JSONResponse({"detail": detail}, 412)

    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether new sessions are taken."""
        ready = sessions.alive and not sessions.draining
        return JSONResponse({"ready": ready, "sessions": len(sessions)}, 200 if ready else 503)

    @app.get("/v1/environment")
    async def hello() -> Hello:
        """What is played here, and how much of it at once."""
        return Hello(environment=environment, batch=BATCH, body=limits.body)

    @app.post("/v1/tasks", response_model=Stored)
    async def tasks(upload: Upload, fingerprint: Annotated[str | None, Header(alias=HEADER)] = None) -> Any:
        """Takes tasks this server does not have."""
        try:
            return mismatch(fingerprint) or Stored(stored=book.add(upload.games))
        except EnvError as error:
            return JSONResponse({"detail": str(error)}, 409)

    @app.post("/v1/play", response_model=Answer)
    async def play(batch: Batch, fingerprint: Annotated[str | None, Header(alias=HEADER)] = None) -> Any:
        """Opens, forks, steps and closes sessions. A request that is sent again is not played again."""
        wrong = mismatch(fingerprint)
        if wrong is not None or not sessions.alive:
            return wrong or JSONResponse({"detail": "this server is stopping"}, 503)
        began = time.perf_counter()
        try:
            answer = await asyncio.wrap_future(sessions.play(batch))
        except EnvError as error:
            return JSONResponse({"detail": str(error)}, 503)
        metrics.batch.observe(len(answer.played))
        metrics.seconds.observe(time.perf_counter() - began)
        return Response(answers.dump_json(answer), media_type="application/json")

    return app
