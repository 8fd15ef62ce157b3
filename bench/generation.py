"""Speed of generation: sampled tokens per second while trajectories grow.

    python -m bench.generation [--parallel 64 128] [--steps 20] [--threads 2] [--backends torch vllm]

A random model of the embedded policy's size. The first prompt of a row has 120 tokens, shared by eight
rows; each later step adds a prompt of 10 to 30 tokens and samples 8 to 14, so a row grows to some 700
tokens in 20 steps. Tokens per CPU second are the figure to compare on a machine that does other work.
vLLM takes part where it is installed (.venv-vllm on a CPU); its start and compilation are not counted.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import tempfile
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Policy, Sampling
from agent.types import Request

VOCAB, WINDOW = 1024, 1536


def make_model() -> Qwen2ForCausalLM:
    """Returns a random model of the embedded policy's size (0.9 M parameters)."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    return Qwen2ForCausalLM(config).eval()


def torch_policy(model: Qwen2ForCausalLM, parallel: int) -> Policy:
    """Returns a policy of plain PyTorch."""
    return TorchPolicy(model, [VOCAB], window=WINDOW, max_parallel=parallel)


def vllm_policy(model: Qwen2ForCausalLM, parallel: int, *, eager: bool = False) -> Policy:
    """Returns a policy of vLLM."""
    from agent.policies.vllm_policy import VLLMPolicy

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        policy = VLLMPolicy(folder, [VOCAB], window=WINDOW, max_parallel=parallel, eager=eager)
    policy.load_weights(model.named_parameters(), version=1)
    return policy


BACKENDS: dict[str, Callable[[Qwen2ForCausalLM, int], Policy]] = {
    "torch": torch_policy,
    "vllm": vllm_policy,
    "vllm-eager": functools.partial(vllm_policy, eager=True),
}


def play(policy: Policy, parallel: int, steps: int) -> dict[str, float]:
    """Generates `steps` responses in each of `parallel` rows and returns the figures."""
    rng = np.random.default_rng(0)
    sampled = prompted = 0
    lengths = np.zeros(parallel, dtype=int)
    began, cpu_began = time.perf_counter(), time.process_time()
    for t in range(steps):
        requests = []
        for key in range(parallel):
            # Eight members of a group share their first prompt.
            draws = np.random.default_rng(key // 8) if t == 0 else rng
            count = 120 if t == 0 else int(draws.integers(10, 31))
            ids = draws.integers(0, VOCAB, size=count).tolist()
            # No token stops a response; its length is drawn, as a trained policy's varies.
            longest = int(rng.integers(8, 15))
            requests.append(Request(key, ids, t == 0, seed=t * parallel + key, max_new_tokens=longest))
            prompted += count
            lengths[key] += count
        for key, generation in enumerate(policy.generate(requests, Sampling(1.0))):
            sampled += len(generation.ids)
            lengths[key] += len(generation.ids)
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
    return {
        "seconds": seconds,
        "sampled tokens/s": sampled / seconds,
        "sampled tokens/CPU s": sampled / cpu_seconds,
        "all tokens/s": (sampled + prompted) / seconds,
        "tokens per response": sampled / (parallel * steps),
        "final row length": float(lengths.mean()),
    }


def main() -> None:
    """Prints one line a setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parallel", type=int, nargs="+", default=[1, 16, 64, 128])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    there = ["torch", *(["vllm"] if importlib.util.find_spec("vllm") else [])]
    parser.add_argument("--backends", nargs="+", default=there, choices=BACKENDS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = make_model()
    for parallel in options.parallel:
        for backend in options.backends:
            policy = BACKENDS[backend](model, parallel)
            play(policy, parallel, 2)
            figures = play(policy, parallel, options.steps)
            print(
                f"{backend:10s} parallel {parallel:4d}  "
                + "  ".join(f"{name} {value:,.1f}" for name, value in figures.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
