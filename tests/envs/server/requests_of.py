"""What the tests of the HTTP interface share."""

from __future__ import annotations

from envs.wire.task_book import content, task_digest
from tests.envs.small_games import kitchen

GAME = kitchen()


TASK = {"id": GAME.id, "digest": task_digest(GAME)}


UPLOAD = {"games": [content(GAME).model_dump()]}


def play(client, **batch):
    response = client.post("/v1/play", json=batch)
    assert response.status_code == 200, response.text
    return response.json()["played"]


def opening(name, **more):
    return {"session": name, "task": TASK, "seed": 0} | more
