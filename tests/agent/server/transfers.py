"""What the tests of transfers share."""

from __future__ import annotations

from tests.agent.server.started import toy_model

OLD, NEW = toy_model(), toy_model(seed=1)


def ready(client):
    response = client.get("/readyz")
    assert (response.status_code == 200) == response.json()["ready"]
    return response.json()["ready"]
