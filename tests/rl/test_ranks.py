"""The number of processes changes nothing: real processes, the plain torch engine as the truth."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from agent.ranks import RanksError
from bench.ranks import (
    BLOCK,
    CASES,
    Case,
    differences,
    drift,
    make_learner,
    make_model,
    make_update,
    on_ranks,
    table,
    train_case,
    train_cases,
    truth,
)

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-5
# Rounding alone puts the weights off by 0.09 of the way they went: the truth is rounded nowhere.
LOSS_BF16, DRIFT_BF16 = 1e-2, 0.4


@pytest.fixture(scope="module")
def expected():
    return {case: train_case(case) for case in {truth(case) for case in CASES}}


def check(cases, answers, expected):
    for answer in answers:
        for case, got in zip(cases, answer, strict=True):
            loss, weight = differences(got, expected[truth(case)])
            if case.dtype == "bfloat16":
                assert loss < LOSS_BF16 and drift(got, expected[truth(case)]) < DRIFT_BF16, case
            else:
                assert loss < TOLERANCE and weight < TOLERANCE, case


def test_two_ranks_are_one(expected):
    """One ordinary case, one with fewer micro-batches than ranks."""
    cases = [Case(2), Case(3, lora=True, budget=4096)]
    check(cases, on_ranks(2, train_cases, cases), expected)


def test_the_truth_moves(expected):
    """What is compared above is far from the start, and not the same for all."""
    start = {name: weight.detach().numpy() for name, weight in make_model().named_parameters()}
    for case, trained in expected.items():
        moved = max(float(abs(trained.weights[name] - start[name]).max()) for name in start)
        assert moved > 100 * TOLERANCE, case
    full, adapted = expected[Case(None)], expected[Case(None, lora=True)]
    assert differences(full, adapted)[1] > 100 * TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_is_one(ranks, expected):
    check(CASES, on_ranks(ranks, train_cases, CASES), expected)


def exchange():
    """Two channels, used in turn."""
    from rl.learner.deepspeed_engine import DeepSpeedEngine, join
    from rl.learner.engine import OptimOptions

    join(60)
    assert torch.distributed.is_initialized()
    join(60)  # once more does nothing
    engine = DeepSpeedEngine(make_model(), OptimOptions(), zero_stage=1, timeout_s=60)
    one, two = engine.channel(), engine.channel()
    gathered = one.gather({"rank": one.rank, "data": b"x" * 100_000 * (one.rank + 1)})
    return two.share(one.rank + 5), [(v["rank"], len(v["data"])) for v in gathered], one.size


def late():
    """Rank 1 is late for what rank 0 shares."""
    from rl.learner.deepspeed_engine import join
    from rl.learner.processes import Channel

    join(60)
    channel = Channel(2.0)
    if channel.rank == 1:
        time.sleep(8)
        return ""
    began = time.monotonic()
    with pytest.raises(RanksError, match=r"rank 0 waited for what the other ranks have to say.*within 2 s"):
        channel.gather(None)
    return time.monotonic() - began


def test_the_torch_engine_on_several_ranks(expected):
    """As one process; the same weights on all ranks and in a second run, to the bit."""
    cases = [Case(None), Case(None, lora=True), Case(None, dtype="bfloat16")]
    answers = on_ranks(3, train_cases, cases)
    check(cases, answers, expected)
    again = on_ranks(3, train_cases, cases)
    for answer in (*answers[1:], *again):
        for one, other in zip(answers[0], answer, strict=True):
            assert one.losses == other.losses
            assert all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)


def deserted(stage):
    """Rank 1 goes home after the first update."""
    learner = make_learner(Case(stage))
    channel = learner.engine.channel()
    make_update(learner, 1)
    if channel.rank == 1:
        return ""
    said = []
    engine = learner.engine
    for attempt in (
        lambda: make_update(learner, 2),
        lambda: engine.reduce([1.0], "sum"),
        lambda: channel.gather(0),
    ):
        began = time.monotonic()
        with pytest.raises(RanksError) as error:
            attempt()
        assert time.monotonic() - began < 30
        said.append(str(error.value))
    return said


@pytest.mark.slow
@pytest.mark.parametrize("stage", [None, 0, 1, 2, 3])
def test_a_missing_rank_is_said_wherever_it_is_missed(stage):
    # An update begins with the scores that tell how far it moves the policy, which the ranks share; where
    # weights are sharded, a pass waits before that.
    first = "the others' parts of the weights" if stage == 3 else "what the other ranks have to say"
    places = first, "the sums of the others", "what the other ranks have to say"
    for text, what in zip(on_ranks(2, deserted, stage)[0], places, strict=True):
        assert re.match(
            rf"rank 0 waited for {what}.*, but another process died, or did not come within", text
        )


@pytest.mark.slow
def test_a_channel_carries_objects():
    answers = on_ranks(2, exchange)
    assert answers == [(5, [(0, 100_000), (1, 200_000)], 2)] * 2


@pytest.mark.slow
def test_nobody_waits_longer_than_the_time_out():
    assert on_ranks(2, late)[0] < 6


@pytest.mark.slow
def test_missing_processes_are_said(monkeypatch):
    code = "from rl.learner.deepspeed_engine import join\njoin(2)"
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment, "MASTER_PORT": "29871"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "agent.ranks.RanksError: rank 0 waited for the 2 processes to join" in done.stderr


TRAINING = """
    import os, signal, sys
    sys.path.insert(0, sys.argv[1])
    from bench.ranks import Case, make_learner, make_update
    learner = make_learner(Case(int(sys.argv[2])))
    for update in range(1, 100):
        make_update(learner, update)
        if update == 3 and os.environ["RANK"] == "1":
            print("killing myself", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 3])
def test_a_rank_killed_in_training_ends_the_run(tmp_path, stage):
    script = tmp_path / "training.py"
    script.write_text(textwrap.dedent(TRAINING))
    code = f"""
        import sys
        from pathlib import Path
        from commands.launch import launch
        sys.exit(launch(2, [{str(ROOT)!r}, "{stage}"], Path({str(script)!r})))
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as run:
        for line in run.stderr:
            if "killing myself" in line:
                break
        died = time.monotonic()
        rest = run.stderr.read()
    assert time.monotonic() - died < 10
    assert run.returncode == 128 + signal.SIGKILL
    assert rest.splitlines()[-1].startswith("rank 1 (pid ")


@pytest.mark.slow
def test_the_table_is_what_was_measured():
    case = Case(1, updates=1)
    head, rule, line = table([1], [case]).splitlines()
    assert head == "| case | 1 rank: loss, weight, drift |"
    assert rule == "| --- | --- |"
    assert line.startswith("| ZeRO-1, all weights | ")
    got, right = train_case(case), train_case(truth(case))
    said = tuple(map(float, line.split("|")[2].split(",")))
    assert said == pytest.approx((*differences(got, right), drift(got, right)), rel=0.1)
    assert BLOCK.sub(r"\1X\2", "a\n<!-- ranks -->\nold\n<!-- /ranks -->\n") == (
        "a\n<!-- ranks -->\nX<!-- /ranks -->\n"
    )
