"""Generation, training and weight transfer on one accelerator, in minutes, with nothing to download.

A random Qwen2 (full: 0.5 B parameters, bfloat16; tiny: for a CPU) is saved in a temporary folder. Twice: 128
responses to prompts of 1,000 tokens are sampled, eight to each prompt; the sampler sleeps; the learner takes
an update on random advantages; its weights go back to the sampler, and the contract between both is checked:
the log-probabilities of a new response, sampler against learner. `moved` is how far the update moved those of
the first response; a gap that is small beside it shows that the weights arrived.

MFU is the learner's operations a second as a share of the peak that the vendor states for dense bfloat16:
6 Ψ a token for the weights (Kaplan et al. 2020, arXiv 2001.08361, §2.1) and 6 · layers · Q · L² a row of L
tokens for causal attention (Chowdhery et al. 2022, arXiv 2204.02311, appendix B, halved), Q = heads · width.
"""

from __future__ import annotations

import importlib.util
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from agent.policies.torch_policy import TorchPolicy
from agent.policy import Policy, Sampling
from agent.types import Request
from rl.contract import Contract
from rl.learner.engine import Engine, OptimOptions
from rl.learner.learner import BatchOptions, Learner
from rl.learner.loss import LossOptions
from rl.learner.schedule import LearningRate
from rl.learner.torch_engine import TorchEngine, unique_weights
from rl.rows.assemble import TokenRow
from rl.sync import sync

UPDATES, GROUP = 2, 8
LEARNING_RATE = 1e-4  # large for so large a model: an update that moves nothing would show nothing
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.5}  # nats

PEAK_TFLOPS = {
    "H100 PCIe": 756,
    "H100 NVL": 835,
    "H100": 989,
    "H200": 989,
    "H20": 148,
    "B200": 2250,
    "A100": 312,
    "A10G": 70,
    "A10": 125,
    "L40S": 362,
    "L4": 121,
    "RTX A6000": 155,
    "RTX 4090": 165,
}
"""Part of a GPU's name, the first that fits, to 10¹² dense bfloat16 operations a second (data sheets)."""


@dataclass(frozen=True)
class Size:
    """A model and how much it is asked."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    vocabulary: int
    dtype: torch.dtype
    responses: int
    prompt: int
    response: int
    token_budget: int

    def config(self) -> Qwen2Config:
        """Of the model; weights large enough for a peaked distribution."""
        return Qwen2Config(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            tie_word_embeddings=True,
            initializer_range=0.05,
            bos_token_id=None,
            eos_token_id=None,
        )


SIZES = {
    "full": Size(1280, 6912, 16, 10, 32768, torch.bfloat16, 128, 1000, 200, 16384),
    "tiny": Size(128, 256, 2, 4, 512, torch.float32, 16, 64, 12, 1024),
}


def peak_flops(name: str) -> float | None:
    """Operations a second of a GPU by its name, None if it is not known."""
    return next((1e12 * peak for part, peak in PEAK_TFLOPS.items() if part in name), None)


def operations(lengths: Sequence[int], size: Size, parameters: int) -> float:
    """Of a forward and backward pass over rows of these lengths; see the module."""
    weights = 6.0 * parameters * sum(lengths)
    return weights + 6.0 * size.layers * size.hidden * float(
        np.square(np.asarray(lengths, dtype=float)).sum()
    )


def memory() -> float:
    """GiB in use on the accelerator, by all there is on it; without one, of this process at its most."""
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _has(package: str, choice: str, wanted: str) -> bool:
    if choice != "auto":
        return choice == wanted
    return importlib.util.find_spec(package) is not None


def make_policy(backend: str, size: Size, folder: Path, model: Qwen2ForCausalLM) -> Policy:
    """The sampler, with the model's weights."""
    options = {"window": size.prompt + size.response + 1, "max_parallel": size.responses}
    if not _has("vllm", backend, "vllm"):
        return TorchPolicy(model, [size.vocabulary], **options)  # no token ends a response
    from agent.policies.vllm_policy import VLLMPolicy

    policy = VLLMPolicy(str(folder), [], **options, dtype=str(size.dtype).removeprefix("torch."))
    policy.load_weights(unique_weights(model), 0)
    return policy


def make_engine(engine: str, model: Qwen2ForCausalLM) -> Engine:
    """The training engine."""
    if not _has("deepspeed", engine, "deepspeed"):
        return TorchEngine(model, OptimOptions())
    from rl.learner.deepspeed_engine import DeepSpeedEngine

    return DeepSpeedEngine(model, OptimOptions(), zero_stage=2)


def sample(policy: Policy, size: Size, number: int) -> tuple[list[TokenRow], float]:
    """Rows of sampled responses, and the seconds they took."""
    rng = np.random.default_rng(number)
    prompts = rng.integers(0, size.vocabulary, (size.responses // GROUP, size.prompt)).tolist()
    requests = [
        Request(key, prompts[key // GROUP], True, seed=1000 * number + key, max_new_tokens=size.response)
        for key in range(size.responses)
    ]
    began = time.perf_counter()
    generations = policy.generate(requests, Sampling(1.0))
    seconds = time.perf_counter() - began
    rows = []
    for request, generation in zip(requests, generations, strict=True):
        policy.release(request.key)
        ids = np.array([*request.ids, *generation.ids], dtype=np.int32)
        span = (len(request.ids), len(ids), request.key)
        rows.append(TokenRow(ids, (span,), np.array(generation.logps, dtype=np.float32), request.key))
    return rows, seconds


def train(learner: Learner, rows: Sequence[TokenRow], number: int) -> tuple[dict[str, float], float, float]:
    """One update; returns its metrics, its seconds, and the learner's most memory (GiB, 0 without a GPU)."""
    advantage = np.random.default_rng(number).normal(size=len(rows))
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    metrics = learner.update(rows, advantage, update=number)
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return metrics, seconds, torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0


def check(size: Size, backend: str, engine: str, folder: Path) -> None:
    """Prints a line for whatever is done and found.

    Raises:
        SyncError: the weights did not reach the sampler.
    """
    cuda = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if cuda else "no GPU"
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(size.config()).to(size.dtype).to("cuda" if cuda else "cpu").eval()
    model.save_pretrained(folder)
    parameters = sum(p.numel() for p in model.parameters())
    print(
        f"{name} · torch {torch.__version__} · {parameters / 1e6:.1f} M parameters, {size.dtype}", flush=True
    )
    began = time.perf_counter()
    policy = make_policy(backend, size, folder, model)
    learner = Learner(
        make_engine(engine, model),
        loss=LossOptions(mismatch="tis"),
        batches=BatchOptions(token_budget=size.token_budget),
        lr=LearningRate(LEARNING_RATE),
        temperature=1.0,
        seed=0,
    )
    parts = f"{type(policy).__name__}, {type(learner.engine).__name__}"
    print(f"start: {time.perf_counter() - began:.0f} s for {parts}", flush=True)
    probe = np.random.default_rng(7).integers(0, size.vocabulary, 48).tolist()
    contract = Contract(probe, 1.0, TOLERANCE[size.dtype])
    gap = sync(learner, policy, contract)["sync/logp_gap"]
    print(f"contract before training: {gap:.1e} nats", flush=True)
    sample(policy, size, 0)  # compiles, captures graphs
    for number in range(1, UPDATES + 1):
        _update(learner, policy, contract, size, number, peak_flops(name), parameters)


def _update(
    learner: Learner,
    policy: Policy,
    contract: Contract,
    size: Size,
    number: int,
    peak: float | None,
    parameters: int,
) -> None:
    rows, seconds = sample(policy, size, number)
    sampled = sum(len(row.logp_sampled) for row in rows)
    awake = memory()
    policy.sleep()
    asleep = memory()
    metrics, trained, highest = train(learner, rows, number)
    tokens = metrics["train/input_tokens"]
    # `tis` scores all rows once before it trains on them: a forward pass, a third of the other's work.
    rate = operations([len(row.ids) for row in rows], size, parameters) * 4 / 3 / trained
    mfu = f"MFU {rate / peak:.1%} of {peak / 1e12:.0f} Tflop/s" if peak else "no peak known, so no MFU"
    began = time.perf_counter()
    gap = sync(learner, policy, contract)["sync/logp_gap"]
    sent = time.perf_counter() - began
    moved = float(np.abs(learner.logps(rows[:1])[0] - rows[0].logp_sampled).max())
    print(
        f"update {number}\n"
        f"  generation  {sampled:,} tokens in {seconds:.1f} s: {sampled / seconds:,.0f} tokens/s\n"
        f"  learner     {tokens:,.0f} tokens in {trained:.1f} s: {tokens / trained:,.0f} tokens/s; {mfu}; "
        f"{rate / 1e12:.3g} Tflop/s reached\n"
        f"  mismatch    KL {metrics['train/mismatch_kl']:.1e} nats, largest ratio "
        f"{metrics['train/mismatch_ratio_max']:.4f}, capped {metrics['train/mismatch_capped']:.2%}\n"
        f"  transfer    {sent:.1f} s with its check; contract {gap:.1e} nats, moved {moved:.1e}\n"
        f"  memory      {awake:.1f} GiB while generating, {asleep:.1f} asleep"
        + (f", learner's peak {highest:.1f}" if highest else ""),
        flush=True,
    )
    if not gap < moved:
        raise SystemExit(
            f"the contract's gap ({gap:.1e} nats) is not below what the update moved ({moved:.1e}): it "
            "cannot tell old weights from new ones"
        )
