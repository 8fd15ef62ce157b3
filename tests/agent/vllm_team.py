"""One of the processes that hold a vLLM together: argv: folder of the model, ranks of a team, where to write.

Every team plays in `free` mode with environments that answer when they like; what was sampled is compared
with the log-probabilities of a full forward pass.
"""

import json
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from agent.policies.vllm_policy import VLLMPolicy
from agent.policy import Sampling
from agent.prompts.builder import PromptBuilder, load_template
from agent.prompts.turns import TurnFormat
from agent.rollout.options import RolloutOptions
from agent.rollout.over_ranks import play_shared
from agent.rollout.rollout import Rollout
from agent.team_policy import TeamPolicy
from agent.types import Request
from rl.learner.processes import Channel
from rl.learner.teams import TeamChannel
from tests.agent.streaming import ShuffledPool
from tests.toy import ToyEnv, toy_tasks, toy_tokenizer

WINDOW = 512
PROMPTS = PromptBuilder(TurnFormat(toy_tokenizer()), "append", load_template("alfworld_bare"), 2, WINDOW, 16)


def rollout(policy, part):
    return Rollout(
        policy,
        Sampling(0.7),
        ShuffledPool(ToyEnv, random.randrange(2**31)),  # in another order on every rank
        toy_tasks(6),
        group_size=2,
        prompts=PROMPTS,
        max_parallel=4,
        seed=1,
        options=RolloutOptions(mode="free"),
        part=part,
    )


def gap_of(model, prompt, response, logps):
    """Largest |log-probability − a full forward pass's| of a response."""
    with torch.no_grad():
        logits_LV = model(torch.tensor([[*prompt, *response]])).logits[0].float()
    expected_LV = torch.log_softmax(logits_LV / 0.7, dim=-1)[len(prompt) - 1 : -1]
    expected_L = expected_LV.gather(1, torch.tensor(response)[:, None]).squeeze(1)
    return (expected_L - torch.tensor(logps)).abs().max().item()


def main():
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    ranks = Channel(120.0)
    own = VLLMPolicy(
        folder, [3], window=WINDOW, max_parallel=8, batched_tokens=WINDOW, eager=True, tensor_parallel=size
    )
    policy = TeamPolicy(own, TeamChannel(size, 120.0))
    model = AutoModelForCausalLM.from_pretrained(folder)
    held, whole = (sum(p.numel() for p in one.parameters()) for one in (own._engine._model, model))
    worst, trajectories = 0.0, 0
    for version in (1, 2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.1)
        policy.load_weights(model.named_parameters(), version)
        back = dict(policy.held_weights())
        assert all(torch.equal(back.pop(name), weight) for name, weight in model.named_parameters())
        assert not back
        requests = [Request(key, [5 + key] * (40 + key), True, key, 8) for key in range(9)]
        for one, made in zip(requests, policy.generate(requests, Sampling(0.7)), strict=True):
            worst = max(worst, gap_of(model, one.ids, made.ids, made.logps))
            policy.release(one.key)
        groups, _ = play_shared(lambda part: rollout(policy, part), ranks, 2, policy=policy)
        for trajectory in (one for group in groups for one in group):
            row, trajectories = [], trajectories + 1
            for step in trajectory.steps:
                row = [*([] if step.fresh else row), *step.prompt_ids]
                worst = max(worst, gap_of(model, row, step.response_ids, step.logp_sampled))
                row += step.response_ids
    tokens = [step.response_ids for group in groups for one in group for step in one.steps]
    found = {
        "rank": ranks.rank,
        "worst": worst,
        "held": held / whole,
        "played": trajectories,
        "tokens": tokens,
    }
    (Path(sys.argv[3]) / f"{ranks.rank}.json").write_text(json.dumps(found), encoding="utf-8")
    ranks.gather(None)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
