"""Weights arrive whole and unchanged, or the server has none and everybody is told why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import torch

import agent.client.sender as sender
from agent.policies.server_policy import ServerPolicy, TransferOptions
from agent.policy import PolicyError, Sampling
from agent.wire.messages import bucket_file
from agent.wire.transfer import Assembler, Checksums, Group, TransferError, buckets, pack, unpack
from tests.agent.server.started import HEADERS, ROOT, VOCAB, local_policy, started, toy_description, toy_model
from tests.agent.server.test_policy_server import TIMEOUT, connected, counted, equal, requests
from tests.toy import tiny_model

WAYS = ("body", "file", "group")
OLD, NEW = toy_model(), toy_model(seed=1)


@pytest.fixture
def options(folder):
    """Options of a way; small buckets, so that tensors are cut (the embeddings have 51,200 bytes)."""

    def make(way, **more):
        given = {"timeout_s": TIMEOUT, "checksum": True, "bucket_bytes": 20_000, "folder": folder}
        return TransferOptions(way, **given | more)

    return make


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server.url, headers=HEADERS, timeout=TIMEOUT) as one:
        yield one


def ready(client):
    response = client.get("/readyz")
    assert (response.status_code == 200) == response.json()["ready"]
    return response.json()["ready"]


def state(client):
    return client.get("/v1/weights").json()


def begin(client, label, **more):
    message = {"label": label, "version": 1, "way": "body", "timeout_s": TIMEOUT} | more
    return client.post("/v1/weights/begin", json=message)


def put(client, label, number, data):
    return client.post("/v1/weights/bucket", params={"label": label, "number": number}, content=data)


def finish(client, label, tensors, **more):
    return client.post("/v1/weights/finish", json={"label": label, "tensors": tensors} | more)


def in_buckets(model, limit=20_000):
    return [pack(bucket) for bucket in buckets(model.named_parameters(), limit)]


def wait_for(what, seconds=TIMEOUT):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


TENSORS = {
    "a": torch.randn(3, 5),
    "scalar": torch.tensor(2.0, dtype=torch.float64),
    "big": torch.randn(100, 7).bfloat16(),
    "none": torch.empty(0, 3),
    "turned": torch.randn(4, 6).t(),
}


@pytest.mark.parametrize("limit", [8, 17, 60, 100, 10_000])
def test_buckets_are_small_and_give_the_tensors_back(limit):
    found, whole = [], Assembler()
    for bucket in buckets(TENSORS.items(), limit):
        assert sum(piece.numel() * piece.element_size() for _, piece, _, _ in bucket) <= limit
        found += whole.take(unpack(pack(bucket)))
    whole.finish()
    assert [name for name, _ in found] == list(TENSORS)
    for name, tensor in found:
        assert tensor.dtype == TENSORS[name].dtype and torch.equal(tensor, TENSORS[name])


def test_a_bucket_that_is_missing_is_noticed():
    parts = list(buckets(TENSORS.items(), 100))
    for missing in range(len(parts)):
        whole = Assembler()
        kept = parts[:missing] + parts[missing + 1 :]
        try:
            names = [name for part in kept for name, _ in whole.take(part)]
            whole.finish()
        except TransferError as error:
            assert "a bucket is missing" in str(error)
        else:
            assert len(names) < len(TENSORS), "then the count of tensors tells"


def test_a_bucket_too_small_for_anything():
    with pytest.raises(TransferError, match="does not hold one element of scalar"):
        list(buckets(TENSORS.items(), 4))


def test_every_bit_counts_in_a_checksum():
    sums = Checksums()
    sums.add("x", torch.zeros(4))
    for name, tensor in (
        ("x", torch.tensor([0.0, 0.0, 0.0, 1e-45])),
        ("x", torch.zeros(2, 2)),
        ("x", torch.zeros(4, dtype=torch.int32)),
        ("x", -torch.zeros(4)),
    ):
        other = Checksums()
        other.add(name, tensor)
        assert sums.differences(other.digests) == ["x"]
    assert sums.differences({}) == ["x"] and sums.differences(dict(sums.digests)) == []


def test_a_group_is_no_default_group():
    before = torch.distributed.group.WORLD  # None, unless another test of this process has joined its run
    lead = Group.lead("127.0.0.1", 2, 30.0)
    join = Group.join("127.0.0.1", lead.port, 1, 2, 30.0)
    found = {}

    def receive():
        join.meet("gloo", "127.0.0.1", torch.device("cpu"))
        found.update(join.receive(lambda: None))

    receiving = threading.Thread(target=receive)
    receiving.start()
    lead.meet("gloo", "127.0.0.1", torch.device("cpu"))
    for name, tensor in TENSORS.items():
        lead.send(name, tensor)
    lead.end()
    receiving.join(30.0)
    assert list(found) == list(TENSORS)
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS.items())
    assert torch.distributed.group.WORLD is before
    lead.close()
    join.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_brings_new_weights_to_every_server(server, victim, folder, options, way):
    asked = requests(20)
    with connected(server, victim, transfer=options(way)) as policy:
        equal(policy.generate(asked, Sampling()), local_policy(OLD).generate(asked, Sampling()))
        for version, model in ((2, NEW), (3, NEW.to(torch.float64)), (4, OLD)):
            policy.load_weights(model.named_parameters(), version)
            assert policy.version == version
            model.to(torch.float32)
            equal(policy.generate(asked, Sampling()), local_policy(model).generate(asked, Sampling()))
        for one in (server, victim):
            assert counted(one, "weights_version") == 4
    assert list(folder.iterdir()) == []


def flip(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


@pytest.mark.parametrize("way", WAYS)
def test_a_flipped_bit_is_caught(server, client, folder, options, monkeypatch, way):
    with connected(server, transfer=options(way)) as policy:
        with monkeypatch.context() as patch:
            if way == "group":
                send = Group.send
                patch.setattr(
                    Group, "send", lambda self, name, t: send(self, name, t + (name == "model.norm.weight"))
                )
            else:
                calls = []
                patch.setattr(
                    sender,
                    "pack",
                    lambda bucket: calls.append(0) or (flip if len(calls) == 2 else bytes)(pack(bucket)),
                )
            with pytest.raises(TransferError, match=f"{server.url}: the checksums of 1 weights differ"):
                policy.load_weights(NEW.named_parameters(), 2)
        assert policy.version == 1 and not ready(client)
        with pytest.raises(PolicyError, match="load_weights comes first"):
            policy.generate(requests(1), Sampling())
        assert list(folder.iterdir()) == []
        policy.load_weights(NEW.named_parameters(), 3)
        asked = requests(5)
        equal(policy.generate(asked, Sampling()), local_policy(NEW).generate(asked, Sampling()))


@pytest.mark.parametrize("way", WAYS)
def test_a_sender_that_fails_half_way_leaves_no_half_weights(server, client, folder, options, way):
    def half():
        taken.extend([0])
        for number, pair in enumerate(NEW.named_parameters()):
            if number == 5:
                raise ZeroDivisionError("the gathering failed")
            yield pair

    taken = []
    with connected(server, transfer=options(way)) as policy:
        with pytest.raises(ZeroDivisionError):
            policy.load_weights(half(), 2)
        wait_for(lambda: state(client)["failed"])
        assert "its sender gave up: the gathering failed" in state(client)["fault"]
        assert not ready(client) and list(folder.iterdir()) == []
        policy.load_weights(NEW.named_parameters(), 2)
        assert ready(client)


def test_all_weights_are_taken_even_when_their_transfer_fails(server, folder, options):
    taken = []

    def counting():
        for pair in NEW.named_parameters():
            taken.append(pair[0])
            yield pair

    message = "nowhere.*: No such file or directory; choose another folder"
    with connected(server) as policy:
        policy._transfer = options("file", folder=folder / "nowhere")
        with pytest.raises(TransferError, match=message):
            policy.load_weights(counting(), 2)
    assert len(taken) == len(dict(NEW.named_parameters()))


def test_a_folder_that_the_server_does_not_see(server, client, tmp_path, options):
    with connected(server, transfer=options("body")) as policy:
        policy._transfer = options("file", folder=tmp_path)
        with pytest.raises(TransferError, match="the folder has to be one that sender and server share"):
            policy.load_weights(NEW.named_parameters(), 2)
    assert list(tmp_path.iterdir()) == [] and not ready(client)


@pytest.mark.parametrize("way", WAYS)
def test_a_transfer_ends_in_time(server, client, options, way):
    def slowly():
        for number, pair in enumerate(NEW.named_parameters()):
            time.sleep(0.3 if number < 5 else 0.0)
            yield pair

    with connected(server) as policy:
        policy._transfer = options(way, timeout_s=1.0, bucket_bytes=1000)
        began = time.monotonic()
        with pytest.raises(TransferError, match=r"1 s|given up|ended in time|gave up"):
            policy.load_weights(slowly(), 2)
        assert time.monotonic() - began < 15
        wait_for(lambda: state(client)["loading"] is None)
        assert not ready(client)


def test_other_ranks_wait_for_the_sender_and_hear_of_its_failure(server, options):
    with (
        connected(server, run="run-1", loaded=False) as sends,
        connected(server, run="run-1", loaded=False, sends=False) as waits,
    ):
        done = []

        def wait(version):
            try:
                waits.load_weights(iter([("gathered", torch.zeros(1))]), version)
                done.append(waits.version)
            except TransferError as error:
                done.append(error)

        thread = threading.Thread(target=wait, args=(5,))
        thread.start()
        time.sleep(0.3)
        assert not done, "the server has weights, but of another run"
        sends.load_weights(NEW.named_parameters(), 5)
        thread.join(TIMEOUT)
        assert done == [5]
        asked = requests(5)
        equal(waits.generate(asked, Sampling()), sends.generate(asked, Sampling()))
        thread = threading.Thread(target=wait, args=(6,))
        thread.start()
        weights = dict(NEW.named_parameters())
        del weights["model.norm.weight"]
        with pytest.raises(TransferError, match="no value for model.norm.weight"):
            sends.load_weights(weights.items(), 6)
        thread.join(TIMEOUT)
        assert isinstance(done[1], TransferError) and "no value for model.norm.weight" in str(done[1])


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


KILLED = """
import os, sys, json
import torch
from agent.policies.server_policy import ServerPolicy, TransferOptions
from pathlib import Path
from tests.agent.server.started import TOKEN, toy_description, toy_model
url, way, folder = sys.argv[1:]
options = TransferOptions(way, timeout_s=30.0, bucket_bytes=20_000, folder=Path(folder))
policy = ServerPolicy([url], toy_description(), token=TOKEN, transfer=options)
def weights():
    for number, pair in enumerate(toy_model(seed=1).named_parameters()):
        if number == 6:
            os.kill(os.getpid(), 9)
        yield pair
policy.load_weights(weights(), 2)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_sender_that_is_killed_half_way(server, client, folder, options, way):
    with connected(server) as policy:
        command = [sys.executable, "-c", KILLED, server.url, way, str(folder)]
        assert subprocess.run(command, cwd=ROOT, timeout=120).returncode == -9
        assert not ready(client)
        policy._transfer = options(way)
        began = time.monotonic()
        policy.load_weights(NEW.named_parameters(), 3)
        assert time.monotonic() - began < 20
        assert ready(client)
        asked = requests(5)
        equal(policy.generate(asked, Sampling()), local_policy(NEW).generate(asked, Sampling()))
        assert list(folder.iterdir()) == [], "what the killed one left is cleared away"


def peak(pid: int) -> float:
    """Most memory of a process since `forget_peak` (MB)."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def forget_peak(pid: int) -> float:
    """Returns what memory the process has now (MB)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


@pytest.mark.slow
def test_no_end_of_a_transfer_ever_has_a_second_copy(folder):
    """150 MB in buckets of 4 MB: some buckets at each end, not a model."""
    model = tiny_model(VOCAB, hidden=1024, layers=12)
    size = sum(weight.numel() * 4 for weight in model.parameters()) / 2**20
    shape = ("--hidden", "1024", "--layers", "12", "--body", str(2**23), "--folder", str(folder))
    with started(*shape) as server:
        here, there = os.getpid(), server.process.pid
        for way in WAYS:
            given = TransferOptions(way, timeout_s=TIMEOUT, bucket_bytes=2**22, folder=folder, checksum=True)
            policy = ServerPolicy([server.url], toy_description(model), timeout_s=TIMEOUT, transfer=given)
            policy.load_weights(model.named_parameters(), 1)  # it loads code, too
            before = forget_peak(here), forget_peak(there)
            policy.load_weights(model.named_parameters(), 2)
            grown = peak(here) - before[0], peak(there) - before[1]
            print(f"{way}: {size:.0f} MB; the sender grew by {grown[0]:.0f} MB, the server by {grown[1]:.0f}")
            assert max(grown) < size / 3
            policy.close()
