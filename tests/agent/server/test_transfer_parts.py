"""Buckets, checksums and groups, without a server."""

from __future__ import annotations

import threading

import pytest
import torch

from agent.wire.transfer import Assembler, Checksums, Group, TransferError, buckets, pack, unpack

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
