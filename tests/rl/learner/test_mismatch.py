"""Sampler against learner: the laws of both corrections, ranks that share the work."""

import copy
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl.learner.forward import ResponseModel, measure_rows
from rl.learner.learner import BatchOptions
from rl.learner.loss import LossOptions
from rl.learner.pack import loss_rows
from rl.learner.rounds import rounds
from rl.rows.assemble import TokenAdvantage, TokenWeight, step_table
from rl.tracking.metrics import describe
from tests.rl.helpers import VOCAB, double_model, make_learner
from tests.rl.learner.gradients import one_step

TIS, MASK, RECOMPUTE = (LossOptions(mismatch=kind) for kind in ("tis", "mask", "recompute"))


def off_by(rows, factors):
    """The rows as if the sampler had given its i-th token `factors[i]` times the probability it gave."""
    logs, taken = np.log(np.asarray(factors, dtype=np.float32)), 0
    changed = []
    for one in rows:
        n = len(one.logp_sampled)
        changed.append(replace(one, logp_sampled=one.logp_sampled + logs[taken : taken + n]))
        taken += n
    return changed


def exact(rows):
    """The rows as sampled by the learner itself."""
    learner = make_learner(double_model(VOCAB))
    return [replace(one, logp_sampled=logp) for one, logp in zip(rows, learner.logps(rows), strict=True)]


def test_exact_samplers_need_no_correction(rows, advantage):
    sampled = exact(rows)
    plain, _ = one_step(sampled, advantage, LossOptions())
    for loss in (TIS, RECOMPUTE, MASK):
        corrected, metrics = one_step(sampled, advantage, loss)
        torch.testing.assert_close(corrected, plain, atol=1e-8, rtol=1e-6)
        assert metrics["train/mismatch_kl"] < 1e-9
    assert metrics["train/mismatch_masked"] == 0.0


def test_truncated_weights_undo_what_the_sampler_got_wrong(rows, advantage):
    """A sampler a factor 0.8 off on some tokens: before the first step the ratio is 1, the weight 1 / 0.8."""
    sampled = exact(rows)
    tokens = sum(len(one.logp_sampled) for one in rows)
    factors = np.where(np.arange(tokens) % 3 == 0, 0.8, 1.0)
    loss = LossOptions(clip_low=0.05, clip_high=0.05, mismatch="tis", mismatch_cap=1.2)
    got, metrics = one_step(off_by(sampled, factors), advantage, loss)
    assert metrics["train/ratio_max"] == pytest.approx(1.0, abs=1e-5)  # 1.25, clipped, with `off`
    assert metrics["train/mismatch_capped"] == pytest.approx(np.mean(factors < 1))
    assert metrics["train/mismatch_ratio_max"] == pytest.approx(1.25, abs=1e-4)
    # The same by advantages: a token's gradient at ratio 1 is that of its weight times its advantage.
    table_rows = [n for one in rows for start, end, n in one.spans for _ in range(end - start)]
    weighed = np.where(factors < 1, 1.2, 1.0) * advantage[table_rows]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(table_rows, minlength=len(advantage)))])
    order = np.argsort(table_rows, kind="stable")
    expected, _ = one_step(sampled, TokenAdvantage(weighed[order], offsets), LossOptions())
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("kind", ["ppo", "gspo"])
def test_recomputing_is_training_on_what_the_learner_would_have_sampled(rows, advantage, kind):
    """As if `logp_sampled` had been the learner's own, whatever the sampler said; `off` and `tis` differ."""
    tokens = sum(len(one.logp_sampled) for one in rows)
    sampled = off_by(exact(rows), np.where(np.arange(tokens) % 3 == 0, 0.7, 1.1))
    loss = LossOptions(kind=kind, mismatch="recompute", clip_low=0.05, clip_high=0.05)
    got, metrics = one_step(sampled, advantage, loss)
    expected, _ = one_step(exact(rows), advantage, replace(loss, mismatch="off"))
    torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-6)
    for other in ("off", "tis"):
        assert (one_step(sampled, advantage, replace(loss, mismatch=other))[0] - got).abs().max() > 1e-4
    assert metrics["train/ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["train/clip_fraction"] == 0.0
    assert metrics["train/mismatch_ratio_max"] == pytest.approx(1 / 0.7, rel=1e-4)
    assert not {"train/mismatch_capped", "train/mismatch_masked"} & set(metrics)


def test_off_is_as_if_there_were_no_such_option(rows, advantage):
    """The ratio is now / sampled to the last bit, and nothing is scored before."""
    learner = make_learner(double_model(VOCAB))
    learner.logps = lambda rows: pytest.fail("scored")
    metrics = learner.update(rows, advantage, update=1)
    assert "train/mismatch_masked" not in metrics and "train/mismatch_capped" not in metrics
    d = np.concatenate(make_learner(double_model(VOCAB)).logps(rows)) - np.concatenate(
        [r.logp_sampled for r in rows]
    )
    assert metrics["train/mismatch_kl"] == pytest.approx(float((np.exp(d) - d - 1).mean()), rel=1e-3)
    assert metrics["train/mismatch_mean"] == pytest.approx(float(np.abs(d).mean()), rel=1e-4)


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "traj-mean-token-mean"])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_masking_is_training_without_these_responses(groups, rows, advantage, aggregation, kl):
    """Neither their terms nor the normaliser know them: what is left weighs more, and sums to 1 as before."""
    loss = LossOptions(aggregation=aggregation, kl_coef=kl, mismatch="mask", mismatch_cap=1.5)
    bad = {one.spans[0][2] for one in rows[::2]}
    factors = np.concatenate(
        [np.full(end - start, 1.6 if n in bad else 1.1) for one in rows for start, end, n in one.spans]
    )
    sampled = off_by(exact(rows), factors)
    got, metrics = one_step(sampled, advantage, loss)
    responses = sum(len(one.spans) for one in rows)
    assert metrics["train/mismatch_masked"] == pytest.approx(len(bad) / responses)

    without = []
    for one in sampled:
        keep = np.concatenate([np.full(end - start, n not in bad) for start, end, n in one.spans])
        spans = tuple(span for span in one.spans if span[2] not in bad)
        if spans:
            without.append(replace(one, spans=spans, logp_sampled=one.logp_sampled[keep]))
    expected, _ = one_step(without, advantage, replace(loss, mismatch="off"))
    assert torch.equal(got, expected)
    whole, _ = one_step(sampled, advantage, replace(loss, mismatch="off"))
    assert (got - whole).abs().max() > 1e-4
    prepared, _ = loss_rows(without, np.ones(len(advantage)), loss)
    assert sum(float(one.weight_T.sum()) for one in prepared) == pytest.approx(1.0)


def test_an_update_whose_responses_are_all_left_out_changes_nothing(model, rows, advantage):
    tokens = sum(len(one.logp_sampled) for one in rows)
    learner = make_learner(copy.deepcopy(model), loss=MASK)
    metrics = learner.update(off_by(exact(rows), np.full(tokens, 3.0)), advantage, update=1)
    assert metrics["train/mismatch_masked"] == 1.0 and metrics["train/optimizer_steps"] == 0
    assert metrics["train/mismatch_ratio_max"] == pytest.approx(3.0, rel=1e-3)
    assert all(
        torch.equal(p, q) for p, q in zip(learner.engine.model.parameters(), model.parameters(), strict=True)
    )
    assert all(describe(name) for name in metrics)


def test_auxiliary_terms_are_masked_and_not_weighed(groups, rows, advantage):
    """With advantages of 0 only the auxiliary loss is left: `tis` leaves it as it is."""
    table = step_table(groups)
    aux = TokenWeight(np.ones(int(table.offsets[-1])), table.offsets)
    tokens = sum(len(one.logp_sampled) for one in rows)
    sampled = off_by(exact(rows), np.full(tokens, 0.7))
    plain, _ = one_step(sampled, advantage * 0, LossOptions(), aux=aux)
    weighed, _ = one_step(sampled, advantage * 0, TIS, aux=aux)
    torch.testing.assert_close(weighed, plain, atol=1e-9, rtol=0.0)
    learner = make_learner(double_model(VOCAB), loss=LossOptions(mismatch="mask", mismatch_cap=1.3))
    assert learner.update(sampled, advantage * 0, update=1, aux=aux)["train/optimizer_steps"] == 0


class Threads:
    """Ranks in one process: `gather` waits until every thread has come."""

    def __init__(self, size):
        self._barrier, self._values, self.size = threading.Barrier(size), [None] * size, size

    def rank(self, rank):
        channel = copy.copy(self)
        channel.rank = rank
        return channel

    def gather(self, value):
        self._values[self.rank] = value
        self._barrier.wait(30)
        values = list(self._values)
        self._barrier.wait(30)
        return values


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_ranks_share_the_scoring(model, rows, size):
    """Every rank makes the same number of passes, nobody makes all, and the numbers are those of one."""
    budget, module = 128, ResponseModel(copy.deepcopy(model))
    alone = measure_rows(module, rows, temperature=0.7, token_budget=budget)
    channel, found, passes = Threads(size), {}, [0] * size

    def work(number):
        def count(*args):
            passes[number] += 1
            return module(*args)

        count.parameters = module.parameters
        ranks = channel.rank(number)
        found[number] = measure_rows(count, rows, temperature=0.7, token_budget=budget, ranks=ranks)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    prepared, _ = loss_rows(rows, np.ones(99), LossOptions())
    lengths = [len(one.ids) for one in prepared]
    assert passes == [len(rounds(lengths, budget, size))] * size
    assert sum(lengths) > 2 * budget and passes[0] <= 1 + math.ceil(sum(lengths) / (budget * size))
    for number in range(size):
        for (logp, entropy), (other, another) in zip(alone, found[number], strict=True):
            np.testing.assert_allclose(other, logp, atol=1e-6)
            np.testing.assert_allclose(another, entropy, atol=1e-6)


@pytest.mark.parametrize("loss", [TIS, RECOMPUTE], ids=lambda loss: loss.mismatch)
def test_minibatches_and_epochs_keep_the_learner_of_before(rows, advantage, loss):
    """The denominator is that of before the update in every step: the ratio leaves 1 after the first."""
    batches = BatchOptions(epochs=2, minibatches=2, token_budget=512)
    learner = make_learner(double_model(VOCAB), loss=loss, batches=batches, lr=1e-2)
    metrics = learner.update(rows, advantage, update=1)
    assert metrics["train/optimizer_steps"] == 4 and metrics["train/ratio_max"] > 1.05


def test_recomputed_denominators_stay_over_the_optimiser_steps_of_an_update(rows, advantage):
    """Four steps with `recompute` end where four with `off` on the learner's own samples do."""
    batches, ends = BatchOptions(epochs=2, minibatches=2, token_budget=512), []
    for loss, given in ((RECOMPUTE, off_by(exact(rows), [0.7] * 9999)), (LossOptions(), exact(rows))):
        learner = make_learner(double_model(VOCAB), loss=loss, batches=batches, lr=1e-2)
        assert learner.update(given, advantage, update=1)["train/clip_fraction"] > 0
        ends.append(torch.cat([tensor.flatten() for _, tensor in learner.named_weights()]))
    moved = torch.cat([p.flatten() for p in double_model(VOCAB).parameters()]).sum() - ends[1].sum()
    assert abs(moved) > 1e-3
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("loss", [LossOptions(), TIS, RECOMPUTE, MASK], ids=lambda loss: loss.mismatch)
def test_preparing_before_changes_nothing(rows, advantage, loss):
    """`prepare`, then `update` with what it gave, is `update` alone, and scores once."""
    metrics, ends = [], []
    for before in (True, False):
        learner = make_learner(double_model(VOCAB), loss=loss)
        scored, score = [], learner.logps
        learner.logps = lambda rows, scored=scored, score=score: scored.append(len(rows)) or score(rows)
        given = learner.prepare(rows) if before else rows
        metrics.append(learner.update(given, advantage, update=1))
        metrics[-1].pop("speed/train_tokens_per_s")
        ends.append([tensor.clone() for _, tensor in learner.named_weights()])
        assert len(scored) == (loss.mismatch != "off")
    assert metrics[0] == metrics[1]
    assert all(torch.equal(one, other) for one, other in zip(*ends, strict=True))
    assert learner.masks == (loss.mismatch == "mask")
