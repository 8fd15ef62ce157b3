"""T2PO and CoPO in a rollout."""

from dataclasses import replace

import numpy as np
import pytest

from agent.steering.copo import CopoSteering
from agent.steering.t2po import T2POSteering
from agent.types import Generation
from credit.parts.t2po_rules import must_resample, turn_score, uncertainty
from credit.stages.copo import CoPO
from credit.stages.t2po import T2PO
from rl.learner.loss import LossOptions
from rl.learner.pack import loss_rows
from rl.rows.assemble import step_table, token_rows
from rl.rows.unplayed import confidence, share_advantage, unplayed_rows
from tests.agent.steered import BOTH, random_actions, steered
from tests.agent.streaming import StreamingPolicy
from tests.agent.test_agent_rollout import TOKENIZER, TURNS, build
from tests.toy import ToyEnv, respond


class Signalled(StreamingPolicy):
    """Its tokens' signals are what `signal(number of the response)` says: (entropy, top-1, top-2) each."""

    def __init__(self, script, signal):
        super().__init__(TOKENIZER, script)
        self.signal = signal

    def _answer(self, request):
        made = super()._answer(request)
        rows = [list(self.signal(len(self.requests) - 1, n)) for n in range(len(made.ids))]
        return Generation(made.ids, made.logps, made.finish, rows)


@BOTH
def test_t2po_answers_again_by_its_rule(mode):
    """One trajectory; the score of every response is computed here by the published formulas."""
    rng = np.random.default_rng(0)
    table = {}

    def signal(number, n):
        return table.setdefault((number, n), tuple(rng.random(3) * [2.0, -1.0, -4.0]))

    rules = T2PO(eta=0.1, max_try=2, top=2)
    policy = Signalled(lambda text, rng: respond("go left"), signal)
    (group,) = steered(policy, T2POSteering(rules), mode, tasks=1, group_size=1)
    steps, kept, previous, number, again = group[0].steps, [], None, 0, 0
    for step in steps:
        for attempt in range(3):
            values = np.array(kept + [table[number, n] for n in range(len(step.response_ids))])
            score = turn_score(uncertainty(values[:, 0], values[:, 1:], 0.5)[len(kept) :])
            number += 1
            change = None if previous is None else abs(score - previous)
            if change is None or not 0 < change < 0.1 or attempt == 2:
                break
            again += 1
            assert must_resample(np.array([score]), np.array([previous]), first_step=False, eta=0.1)[0]
        kept, previous = values.tolist(), score
    assert number == len(policy.requests) and 0 < again < 2 * len(steps)


@BOTH
def test_t2po_ends_a_thought_that_has_settled(mode):
    """The signal peaks at token 1 and is flat from token 3 on: with a window of 2 it stops after token 6."""
    words = "<think>" + "now" * 12 + "</think><action>go left</action>"
    close = TURNS.encode("</think>")

    def script(text, rng):
        return "<action>go right</action>" if text.endswith("</think>") else words

    def signal(number, n):
        return ([0.0, 3.0, 1.0][n] if n < 3 else 0.5), -1.0, -1.0

    rules = T2PO(eta=0.0, top=2, window=2, epsilon=0.01, min_prefix=3)
    policy = Signalled(script, signal)
    (group,) = steered(policy, T2POSteering(rules), mode, tasks=1, group_size=1)
    for step in group[0].steps:
        start, end = step.forced
        assert step.response_ids[start:end] == close and step.action == "go right"
        assert step.response_ids[:start] == TURNS.encode(words)[:start]
    first = group[0].steps[0]
    # the first two flat changes after the peak are those to tokens 4 and 5 (from 0)
    assert first.forced == (6, 6 + len(close))
    assert first.response == "<think>" + "now" * 5 + "</think><action>go right</action>"
    rows = token_rows([group], mask_truncated=False)
    covered = sum(end - start for row in rows for start, end, _ in row.spans)
    assert covered == sum(len(s.response_ids) - len(close) for s in group[0].steps)
    forced = {start + 6 for row in rows for start, end, number in row.spans[:1]}
    assert all(row.ids[at] == close[0] for row in rows for at in forced)
    steps = group[0].steps
    prepared, _ = loss_rows(rows, np.ones(len(steps)), LossOptions(aggregation="seq-mean-token-mean"))
    lengths = [n for row in prepared for n in row.lengths]  # a step is a sequence, in two pieces or not
    assert lengths == [len(s.response_ids) - len(close) for s in steps]
    weights = np.concatenate([row.weight_T for row in prepared])
    shares = [part.sum() for part in np.split(weights, np.cumsum(lengths)[:-1])]
    assert shares == pytest.approx([1 / len(steps)] * len(steps))


def test_copo_answers_at_every_level_and_shares_the_advantage_by_confidence():
    """Confidences 0.2, 0.8, 0.5 and none (0): minmax 0.25, 1, 0.625, 0; weights exp(2 n) over their mean."""
    answers = iter([0.2, 0.8, 0.5, None])

    class Sure(StreamingPolicy):
        def _answer(self, request):
            self.sure = next(answers)
            return super()._answer(request)

        def _logps(self, request, generation):
            return [np.log(self.sure or 0.9)] * len(generation.ids)

    policy = Sure(
        TOKENIZER,
        lambda text, rng: "now" if policy.sure is None else respond("go left").removeprefix("<think>"),
    )
    hand = CopoSteering(CoPO(openings="<think>a|<think>b|<think>c"))
    groups = steered(policy, hand, tasks=1, group_size=1, environments=lambda: ToyEnv(max_steps=1))
    (step,) = groups[0][0].steps
    assert [TURNS.decode(list(s.opening)) for s in step.unplayed] == ["<think>a", "<think>b", "<think>c"]
    rows = token_rows(groups)
    advantage = share_advantage(groups, np.array([3.0]), weigh=CoPO().weigh, turns=TURNS)
    shared = [*rows, *unplayed_rows(groups, first=1, mask_truncated=True)]
    weight = np.exp(2 * np.array([0.25, 1.0, 0.625, 0.0]))
    assert advantage == pytest.approx(3.0 * weight / weight.mean())
    assert advantage.sum() == pytest.approx(4 * 3.0)
    assert len(shared) == 4
    for number, (row, unplayed) in enumerate(zip(shared[1:], step.unplayed, strict=True), start=1):
        ((start, end, step_row),) = row.spans
        assert step_row == number and row.trajectory == 0
        assert row.ids[start:end].tolist() == unplayed.ids
        assert row.ids[:start].tolist() == [*step.prompt_ids, *unplayed.opening]
        assert row.logp_sampled.tolist() == pytest.approx(unplayed.logps)
    # Every answer is a sequence; one that was cut is left out, and the others keep their numbers.
    prepared, _ = loss_rows(shared, advantage, LossOptions(aggregation="seq-mean-token-mean"))
    assert [float(row.weight_T.sum()) for row in prepared] == pytest.approx([1 / 4] * 4)
    step.unplayed = (step.unplayed[0], replace(step.unplayed[1], finish="length"), step.unplayed[2])
    left = unplayed_rows(groups, first=1, mask_truncated=True)
    assert [row.spans[0][2] for row in left] == [1, 3]
    assert len(unplayed_rows(groups, first=1, mask_truncated=False)) == 3
    # A step votes as long as one of its answers is trained on.
    assert step_table(groups, voters=left[1:]).votes.tolist() == [True]
    assert step_table(groups, voters=[]).votes.tolist() == [False]


def test_copo_weights():
    assert CoPO().weigh(np.array([0.4, 0.4, 0.4])) == pytest.approx([1.0, 1.0, 1.0])
    assert CoPO(k=0.0).weigh(np.array([0.1, 0.9])) == pytest.approx([1.0, 1.0])
    assert CoPO(k=1.0).weigh(np.array([0.1, 0.9])) == pytest.approx([2 / (1 + np.e), 2 * np.e / (1 + np.e)])


def test_confidence_is_of_the_action_alone():
    ids = TURNS.encode(respond("go left"))
    start, end = TURNS.reach(ids, "<action>"), TURNS.reach(ids, "</action>")
    assert TURNS.decode(ids[start:end]) == "go left</action>"
    logps = [-5.0] * start + [-0.1] * (end - start)
    assert confidence(ids, logps, TURNS) == pytest.approx(np.exp(-0.1))
    assert confidence(TURNS.encode("now"), [-1.0], TURNS) == 0.0


def test_copo_matches_the_level_of_the_played_answer():
    hand = CopoSteering(CoPO(openings="<think>a|<think>b", original="match"))
    said = iter(["<think>b</think>", "</think>", "<think>c</think>"])
    policy = StreamingPolicy(TOKENIZER, lambda text, rng: next(said))
    groups = steered(
        policy, hand, tasks=2, group_size=1, environments=lambda: ToyEnv(max_steps=1), prompts=build()
    )
    unplayed = {
        s.response[:8]: [TURNS.decode(list(x.opening)) for x in s.unplayed]
        for g in groups
        for s in g[0].steps
    }
    assert list(unplayed.values()) in ([["<think>a"], []], [[], ["<think>a"]])


def test_nothing_to_share_leaves_everything_as_it_is():
    policy = StreamingPolicy(TOKENIZER, random_actions)
    groups = steered(policy, None)
    advantage = np.ones(len(step_table(groups)))
    assert share_advantage(groups, advantage, weigh=CoPO().weigh, turns=TURNS) is advantage
    assert unplayed_rows(groups, first=len(advantage), mask_truncated=True) == []
