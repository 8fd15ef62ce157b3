"""The model of time: operations and bytes worked out by hand, and laws."""

from dataclasses import replace

import pytest

from bench import cluster
from commands import gpu_cards
from commands.gpu_cards import CARDS, Card, Phase
from commands.gpu_memory import CARD, GIB, memory_of
from commands.gpu_time import Lengths, phases, tokens_of
from configs.load import load

BUDGET = int(CARD * GIB)
PSI = 1_543_714_304
HEAD = 151_936 * 1536
LENGTHS = Lengths(10, 900, 100)
READ, SAMPLED = 128 * 10 * 1000, 128 * 10 * 100
STEPS = 5  # 1280 rows, at most 256 each


def work(name="alfworld_1.5b", *overrides, ranks=4, lengths=LENGTHS):
    loaded = load(name, overrides)
    found = phases(loaded, memory_of(loaded, ranks, BUDGET), ranks, lengths)
    return {phase.name: phase for phase in found}


def forward(read=READ, sampled=SAMPLED):
    """28 layers of width 1536 over rows of 1000 tokens."""
    return 2 * (PSI - HEAD) * read + 2 * 28 * 1536 * 1000 * read, 2 * HEAD * sampled


def test_tokens_by_hand():
    tokens = tokens_of(load("alfworld_1.5b").config, LENGTHS)
    assert (tokens.rows, tokens.read, tokens.sampled, tokens.row) == (1280, READ, SAMPLED, 1000)
    assert tokens.pairs == 64 * 10 * 10
    grown = tokens_of(load("alfworld_1.5b", ["prompt.form=append"]).config, LENGTHS)
    assert (grown.rows, grown.read, grown.row) == (128, READ, 10_000)


def test_operations_by_hand():
    blocks, head = forward()
    found = work()
    assert found["reference"].operations == pytest.approx(1.02 * (blocks + head) / 4)
    assert found["update"].operations == pytest.approx(1.02 * 3 * (blocks + head) / 4)
    assert found["old log-probs"].operations == 0
    again = work("alfworld_1.5b", "model.gradient_checkpointing=true", "train.mismatch=tis")
    assert again["update"].operations == pytest.approx(1.02 * (4 * blocks + 3 * head) / 4)
    assert again["old log-probs"].operations == pytest.approx(found["reference"].operations)
    adapted = work("alfworld_1.5b_lora", "model.lora.r=16")
    adapters = 28 * 16 * (2 * (1536 + 1536) + 2 * (1536 + 256) + 3 * (1536 + 8960))
    expected = 1.02 * (2 * (blocks + head) + 6 * adapters * READ) / 4
    assert adapted["update"].operations == pytest.approx(expected)


def test_rounds_by_hand():
    """A step of 256 rows is 256,000 tokens: 8 rounds of 4 × 8192; a pass over all 40."""
    assert (work()["update"].rounds, work()["reference"].rounds) == (STEPS * 8, 40)


def test_bytes_between_cards_by_hand():
    """ZeRO-1 sends gradients once a step, ZeRO-2 once a round; both then the new weights; 3 of 4 parts."""
    weights = 2 * PSI
    found = {n: work("alfworld_1.5b", f"train.zero_stage={n}")["between cards"].link for n in (0, 1, 2, 3)}
    assert found[0] == 0.75 * STEPS * 2 * weights
    assert found[1] == 0.75 * STEPS * (2 * weights + weights)
    assert found[2] == 0.75 * (STEPS * 8 * 2 * weights + STEPS * weights)
    assert found[3] == 0.75 * STEPS * 8 * (weights + 2 * weights)
    assert work("alfworld_1.5b", "train.zero_stage=3")["transfer"].link == 0.75 * weights
    assert work(ranks=1)["between cards"].link == 0


def test_offload_and_a_reference_in_main_memory_by_hand():
    found = work("alfworld_1.5b", "train.offload=true", "train.reference=cpu")
    optimizer = found["optimiser"]
    assert optimizer.hbm == 0 and optimizer.host == 40 * PSI / 4 * STEPS
    assert optimizer.pcie == (STEPS * 8 * 2 + STEPS * 2) * PSI / 4
    assert found["reference"].pcie == 2 * PSI
    assert work()["optimiser"].hbm == optimizer.host and work()["reference"].pcie == 0


def test_generation_by_hand():
    """32 trajectories of 1000 tokens sampled in 32 places; one of 50 steps takes 5000 rounds."""
    found = work()["generation"]
    blocks, head = forward()
    assert found.rounds == 50 * 100 and found.operations == (blocks + head) / 4
    assert found.hbm == 5000 * 2 * PSI + SAMPLED / 4 * 1000 * 28_672
    narrow = work("alfworld_1.5b", "rollout.max_parallel=4")["generation"]
    assert narrow.rounds == 8 * 10 * 100


def test_the_scorers_operations_by_hand():
    weights = 24 * (4 * 1024**2 + 2 * 1024 * 4096)
    each = 256 * 2 * (weights + 2 * 24 * 1024 * 256)
    assert work()["scorer"].operations == 6400 * each / 4
    assert work("alfworld_1.5b", "credit=gigpo", "scorer.name=lexical")["scorer"].operations == 0


def test_seconds_by_hand():
    card = Card(memory=80, peak=100.0, hbm=10.0, link=8.0, pcie=4.0)
    phase = Phase("x", operations=80.0, hbm=14.0, link=6.0, pcie=3.0, host=gpu_cards.HOST_BYTES, rounds=10)
    assert phase.seconds(card) == pytest.approx(80 / 40 + 14 / 7 + 1 + 1 + 1 + 10 * gpu_cards.BATCH_S)
    assert phase.seconds(card, mfu=0.2) - phase.seconds(card) == pytest.approx(2)


@pytest.mark.parametrize("name", ["alfworld_1.5b", "alfworld_7b", "webshop_7b", "alfworld_7b_lora"])
@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_more_ranks_are_never_slower(name, card):
    """But for what ranks send each other, which grows towards its limit."""
    before = None
    for ranks in (1, 2, 4, 8, 16):
        found = work(name, ranks=ranks, lengths=Lengths())
        alone = {key: replace(phase, link=0.0).seconds(card) for key, phase in found.items()}
        if before:
            assert all(alone[key] <= before[key] + 1e-9 for key in alone)
        before = alone


def test_a_faster_card_is_never_slower():
    for phase in work("alfworld_7b").values():
        assert phase.seconds(CARDS["h100"]) <= phase.seconds(CARDS["a100"])


def test_the_published_run_by_hand():
    """3.83 M tokens, a forward pass of 2 operations a weight, 4 A100s at a tenth of 312e12 per second."""
    seconds = 2 * 3_085_938_688 * cluster.PUBLISHED_TOKENS / (4 * 31.2e12)
    cells = [line.strip("| ").split(" | ") for line in cluster.against_published()]
    rows = {name: numbers for name, *numbers in cells}
    for name, passes in (("old log-probs", 1), ("reference", 1), ("update", 4)):
        published, _, _, slow = map(float, rows[name])
        assert slow == pytest.approx(passes * seconds, rel=0.1)
        assert slow == pytest.approx(published, rel=0.06), "docs/gpu.md says so"


def test_the_cluster_in_the_docs_is_current():
    block = cluster.BLOCK.search(cluster.PAGE.read_text())[0]
    assert cluster.made() in block
    assert block.count("| alfworld_1.5b |") == block.count("| alfworld_7b |") == 6
    assert all(f"`{name} = " in block for name in ("MFU", "DECODE_S", "LINK_SHARE", "UNEVEN"))
