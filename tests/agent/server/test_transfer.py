"""Weights arrive whole and unchanged, or the server has none and everybody is told why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

import agent.client.sender as sender
from agent.policies.server_policy import ServerPolicy, TransferOptions
from agent.policy import PolicyError, Sampling
from agent.wire.transfer import Group, TransferError, pack
from tests.agent.server.on_servers import TIMEOUT, connected, counted, equal, requests
from tests.agent.server.started import VOCAB, local_policy, started, toy_description
from tests.agent.server.transfers import NEW, OLD, ready
from tests.serving import ROOT
from tests.toy import tiny_model

WAYS = ("body", "file", "group")


@pytest.fixture
def options(folder):
    """Options of a way; small buckets, so that tensors are cut (the embeddings have 51,200 bytes)."""

    def make(way, **more):
        given = {"timeout_s": TIMEOUT, "checksum": True, "bucket_bytes": 20_000, "folder": folder}
        return TransferOptions(way, **given | more)

    return make


def state(client):
    return client.get("/v1/weights").json()


def wait_for(what, seconds=TIMEOUT):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


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
