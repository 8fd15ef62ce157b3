"""One of two processes, each with a vLLM of its own: argv: folder of the model, folder of the marks.

Rank 0 generates alone while rank 1 waits for its mark outside vLLM, then the other way round; at the end both
exchange what they found through the process group they had before.
"""

import gc
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM

from agent.policies.vllm_policy import VLLMPolicy
from agent.policy import Sampling
from agent.types import Request


def worst_gap(policy, model, count):
    """Largest |log-probability − a full forward pass's| over `count` responses."""
    requests = [Request(key, [5 + key % 40] * (40 + key), True, key, 8) for key in range(count)]
    worst = 0.0
    for request, generation in zip(requests, policy.generate(requests, Sampling(0.7)), strict=True):
        with torch.no_grad():
            logits_LV = model(torch.tensor([[*request.ids, *generation.ids]])).logits[0].float()
        logp_LV = torch.log_softmax(logits_LV / 0.7, dim=-1)
        for i, (token, logp) in enumerate(zip(generation.ids, generation.logps, strict=True)):
            worst = max(worst, abs(logp_LV[len(request.ids) + i - 1, token].item() - logp))
    return worst


def wait_for(mark):
    deadline = time.monotonic() + 60
    while not mark.exists():
        if time.monotonic() > deadline:
            sys.exit(f"nobody made {mark}")
        time.sleep(0.01)


def main():
    folder, marks = Path(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    local_size = os.environ["LOCAL_WORLD_SIZE"]
    policy = VLLMPolicy(folder, [3], window=128, max_parallel=8, eager=True)
    assert os.environ["LOCAL_WORLD_SIZE"] == local_size == "2"
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():  # replicas: other weights on each rank
        for parameter in model.parameters():
            parameter.mul_(1.0 + 0.2 * rank)
    policy.load_weights(model.named_parameters(), version=1)
    worst = 0.0
    for turn in range(2):
        if turn == rank:
            worst = max(worst, worst_gap(policy, model, 5 + 14 * rank))
            (marks / str(turn)).touch()
        wait_for(marks / str(turn))
    del policy
    gc.collect()  # the end of vLLM is not the end of the group
    gathered = [None, None]
    dist.all_gather_object(gathered, (rank, worst))
    print(f"gathered {gathered}", flush=True)
    assert [r for r, _ in gathered] == [0, 1]
    assert max(gap for _, gap in gathered) < 1e-4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
