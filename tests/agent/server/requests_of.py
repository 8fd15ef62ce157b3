"""What the tests of the HTTP interface share."""

from __future__ import annotations

ASK = {"number": 0, "conversation": 0, "ids": [5, 6, 7], "fresh": True, "seed": 0, "max_new_tokens": 5}


def start(client, *asks, name, **more):
    message = {"client": name, "label": client.label, "temperature": 1.0, "ask": list(asks)} | more
    return client.post("/v1/start", json=message)


def collect(client, name, record, ack=0, **more):
    message = {"client": name, "record": record, "ack": ack} | more
    response = client.post("/v1/collect", json=message)
    assert response.status_code == 200, response.text
    return response.json()["responses"]
