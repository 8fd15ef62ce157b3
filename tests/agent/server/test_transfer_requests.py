"""Requests of a transfer as a client may send them: twice, out of order, broken, hostile."""

from __future__ import annotations

import pytest
import torch

from agent.wire.messages import bucket_file
from agent.wire.transfer import buckets, pack
from tests.agent.server.on_servers import TIMEOUT
from tests.agent.server.transfers import NEW, ready


def begin(client, label, **more):
    message = {"label": label, "version": 1, "way": "body", "timeout_s": TIMEOUT} | more
    return client.post("/v1/weights/begin", json=message)


def put(client, label, number, data):
    return client.post("/v1/weights/bucket", params={"label": label, "number": number}, content=data)


def finish(client, label, tensors, **more):
    return client.post("/v1/weights/finish", json={"label": label, "tensors": tensors} | more)


def in_buckets(model, limit=20_000):
    return [pack(bucket) for bucket in buckets(model.named_parameters(), limit)]


def test_buckets_may_be_sent_twice_and_never_out_of_order(client):
    data = in_buckets(NEW)
    assert begin(client, "twice").json()["loading"] == "twice"
    assert begin(client, "twice").status_code == 200
    for number, bucket in enumerate(data):
        if number == 2:
            wrong = put(client, "twice", 3, data[3])
            assert wrong.status_code == 422 and "bucket 3 came where number 2" in wrong.text
        assert [put(client, "twice", number, bucket).status_code for _ in range(2)] == [200, 200]
    assert put(client, "other", 0, data[0]).status_code == 422
    for _ in range(2):
        done = finish(client, "twice", len(dict(NEW.named_parameters())))
        assert done.status_code == 200 and done.json()["label"] == "twice"
    assert begin(client, "twice").json()["label"] == "twice", "it is there already"
    assert ready(client)


def test_a_newer_transfer_takes_the_place_of_one_whose_sender_has_gone(client):
    data, count = in_buckets(NEW), len(dict(NEW.named_parameters()))
    begin(client, "gone")
    assert put(client, "gone", 0, data[0]).status_code == 200
    assert not ready(client)
    start = {"client": "c", "label": "gone", "temperature": 1.0, "ask": []}
    refused = client.post("/v1/start", json=start)
    assert refused.status_code == 409 and "being loaded" in refused.text
    assert begin(client, "next").status_code == 200
    assert put(client, "gone", 1, data[1]).status_code == 422
    for number, bucket in enumerate(data):
        assert put(client, "next", number, bucket).status_code == 200
    assert finish(client, "next", count).status_code == 200
    assert ready(client)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no bucket of weights"),
        (b"\xff" * 100, "no bucket of weights"),
        (pack([("model.norm.weight", torch.zeros(32), 0, [32])])[:-1], "no bucket of weights"),
        (pack([("model.norm.weight", torch.zeros(31), 0, [31])]), "another model's weights"),
        (pack([("model.other.weight", torch.zeros(32), 0, [32])]), "unknown weight 'model.other.weight'"),
        (pack([("model.norm.weight", torch.zeros(32), -1, [32])]), "no bucket of weights"),
        (pack([("model.norm.weight", torch.zeros(32), 0, [2**60])]), "no bucket of weights"),
    ],
)
def test_what_is_no_bucket_is_refused(client, data, message):
    begin(client, f"bad-{abs(hash(data))}")
    response = put(client, f"bad-{abs(hash(data))}", 0, data)
    assert response.status_code == 422 and message in response.json()["detail"]


def test_a_count_that_does_not_fit(client):
    begin(client, "count")
    for number, bucket in enumerate(in_buckets(NEW)):
        put(client, "count", number, bucket)
    response = finish(client, "count", 3)
    assert response.status_code == 422 and "weights arrived of 3 sent" in response.text
    assert not ready(client)
    assert finish(client, "count", 3).status_code == 422, "it stays failed"
    assert begin(client, "count").status_code == 422


@pytest.mark.parametrize("label", ["../etc", "a/b", "..", "a.b", "", "x" * 101])
def test_no_label_leads_out_of_the_folder(client, label):
    assert begin(client, label, way="file").status_code == 422
    response = client.post("/v1/weights/file", json={"label": label, "number": 0})
    assert response.status_code == 422


def test_a_link_in_the_folder_is_not_followed(client, folder, tmp_path):
    (tmp_path / "elsewhere").write_bytes(in_buckets(NEW)[0])
    link = folder / bucket_file("link", 0)
    link.symlink_to(tmp_path / "elsewhere")
    try:
        begin(client, "link", way="file")
        response = client.post("/v1/weights/file", json={"label": "link", "number": 0})
        assert response.status_code == 422 and "cannot be read" in response.text
    finally:
        link.unlink(missing_ok=True)
