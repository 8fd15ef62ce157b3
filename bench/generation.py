"""Speed of generation: sampled tokens a second while trajectories grow.

    python -m bench.generation [--parallel 64 128] [--steps 20] [--threads 2]

A random model of the embedded policy's size. The first prompt of a row has 120 tokens, shared by eight
rows; each later step adds a prompt of 10 to 30 tokens and samples 8 to 14, so a row grows to some 700
tokens in 20 steps. Tokens per CPU second are the figure to compare on a machine that does other work.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agent.policy import Sampling
from agent.policy_torch import TorchPolicy
from agent.types import Request

VOCAB = 1024


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


def play(model: Qwen2ForCausalLM, parallel: int, steps: int) -> dict[str, float]:
    """Generates `steps` responses in each of `parallel` rows and returns the figures."""
    policy = TorchPolicy(model, [VOCAB], window=1536, max_parallel=parallel)
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
        "tokens a response": sampled / (parallel * steps),
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
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = make_model()
    for parallel in options.parallel:
        figures = play(model, parallel, options.steps)
        print(
            f"parallel {parallel:4d}  " + "  ".join(f"{name} {value:,.1f}" for name, value in figures.items())
        )


if __name__ == "__main__":
    main()
