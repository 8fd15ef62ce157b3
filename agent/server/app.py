"""The policy server's HTTP interface; its schema is at /openapi.json, to be read at /docs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response

from agent.server.decoder import Decoder, Unknown
from agent.server.decoder_metrics import DecoderMetrics
from agent.server.weight_state import NotReady, Stopping, Weights
from agent.wire.messages import (
    Abort,
    Begin,
    Collect,
    Collected,
    Done,
    Ending,
    Hello,
    Pushed,
    Release,
    Start,
    Started,
    WeightsState,
)
from agent.wire.transfer import TransferError
from serving.running import make_server_app

STATUS = {Unknown: 404, NotReady: 409, TransferError: 422, Stopping: 503}
"""Of the errors a handler may raise. 503 may pass; 409 not before other weights come."""

BUCKET = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}


@dataclass(frozen=True)
class ConversationLimits:
    """What a server lets clients do.

    Attributes:
        conversations: Held at once.
        idle_seconds: Time after which a client that nobody has heard of is forgotten.
        body: Most bytes of a request.
        rate: Most requests per second and client address.
    """

    conversations: int = 16384
    idle_seconds: float = 600.0
    body: int = 256 * 2**20
    rate: float = 2000.0


def make_app(
    decoder: Decoder,
    weights: Weights,
    hello: Hello,
    *,
    limits: ConversationLimits,
    metrics: DecoderMetrics,
    token: str | None = None,
) -> FastAPI:
    """Returns the application; it starts the decoder, and closes it at the end."""

    app = make_server_app(
        decoder,
        title="Sibling policy server",
        version=str(hello.protocol),
        description=__doc__,
        metrics=metrics,
        token=token,
        body=limits.body,
        rate=limits.rate,
    )
    for kind in STATUS:
        app.add_exception_handler(kind, _failed)
    _add_health(app, decoder, weights)
    _add_responses(app, decoder, weights)
    _add_weights(app, decoder, weights)

    @app.get("/v1/policy")
    async def policy() -> Hello:
        """What is sampled from here."""
        return hello

    return app


def _add_health(app: FastAPI, decoder: Decoder, weights: Weights) -> None:
    @app.get("/readyz")
    async def readyz() -> Response:
        """Whether there are weights to sample from."""
        state = weights.state
        body = {"ready": decoder.ready, "version": state.version, "fault": state.fault}
        return JSONResponse(body, 200 if decoder.ready else 503)


def _add_responses(app: FastAPI, decoder: Decoder, weights: Weights) -> None:
    @app.post("/v1/start")
    async def start(message: Start) -> Started:
        """Takes requests to be answered; one that is sent again is not answered twice."""
        weights.check(message.label)  # at once: the decoder's thread may be taking weights
        return await asyncio.wrap_future(decoder.take(message))

    @app.post("/v1/collect", response_model=Collected)
    async def collect(message: Collect) -> Any:
        """Hands out responses that have ended; what is not acknowledged is handed out again."""
        if weights.due:
            raise Stopping("weights are being loaded: ask again")
        collected = await asyncio.wrap_future(decoder.collect(message))
        return Response(collected.model_dump_json(), media_type="application/json")

    @app.post("/v1/release")
    async def release(message: Release) -> Done:
        """Forgets conversations, responses in flight included."""
        await asyncio.wrap_future(decoder.release(message))
        return Done()


def _add_weights(app: FastAPI, decoder: Decoder, weights: Weights) -> None:
    @app.get("/v1/weights")
    async def state() -> WeightsState:
        """Which weights there are."""
        return weights.state

    @app.post("/v1/weights/begin")
    async def begin(message: Begin) -> WeightsState:
        """Begins a transfer: nothing is sampled any more until a whole one has arrived."""
        if not decoder.alive or decoder.draining:
            raise NotReady("this server is stopping")
        weights.begin(message)
        decoder.wake()
        return weights.state

    @app.post("/v1/weights/bucket", openapi_extra=BUCKET)
    async def bucket(
        request: Request,
        label: Annotated[str, Query(max_length=100)],
        number: Annotated[int, Query(ge=0, lt=2**63)],
    ) -> Done:
        """Takes the next bucket of weights (safetensors); answers when there is room for another."""
        await asyncio.to_thread(weights.put, label, number, await request.body())
        return Done()

    @app.post("/v1/weights/file")
    async def file(message: Pushed) -> Done:
        """Takes the next bucket from the folder of transfers."""
        await asyncio.to_thread(weights.put, message.label, message.number, None)
        return Done()

    @app.post("/v1/weights/finish")
    async def finish(message: Ending) -> WeightsState:
        """Ends a transfer; answers when the policy has the weights."""
        return await asyncio.to_thread(weights.end, message)

    @app.post("/v1/weights/abort")
    async def abort(message: Abort) -> Done:
        """Gives a transfer up."""
        weights.abort(message.why, message.label)
        return Done()


async def _failed(request: Request, error: Exception) -> Response:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return JSONResponse({"detail": str(error)[:2000]}, status)
