"""What is vLLM's own beside the contract of every generator: its start, traps on a CPU, several processes."""

import contextlib
import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agent.policy import PolicyError, Sampling
from agent.types import Request
from tests.agent.backends import STOP, VOCAB, contract_model
from tests.agent.contract import NEAR, full_logps
from tests.conftest import ROOT

pytest.importorskip("vllm")
pytestmark = pytest.mark.slow

import agent.policies.vllm_engine  # noqa: E402
from agent.policies.vllm_policy import VLLMPolicy  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = contract_model()
    # Not to be obeyed: the distribution must be the learner's, and `stop_ids` end a response.
    model.generation_config.update(
        top_k=2, top_p=0.5, temperature=0.1, do_sample=True, eos_token_id=list(range(50))
    )
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def policy(folder):
    return VLLMPolicy(folder, [STOP, VOCAB], window=320, max_parallel=64, batched_tokens=320, eager=True)


def test_it_says_what_is_missing_before_anything_starts(policy, folder):
    request = Request(0, [5, 6], True, 0, 5)
    with pytest.raises(PolicyError, match="no weights: load_weights must come first"):
        policy.generate([request], Sampling())
    policy.load_weights(contract_model().named_parameters(), 1)
    with pytest.raises(PolicyError, match="sample at 0.01 instead of 0.001"):
        policy.generate([request], Sampling(0.001))
    with pytest.raises(PolicyError, match="key 1 adds token 50; the model's vocabulary has 50"):
        policy.generate([request, Request(1, [5, VOCAB], True, 0, 5)], Sampling())
    assert policy.advance() == [], "nothing of the refused batch was started"
    with pytest.raises(PolicyError, match=r"batched_tokens \(256\) must hold a whole row \(320 tokens\)"):
        VLLMPolicy(folder, [STOP], window=320, batched_tokens=256)


@pytest.mark.parametrize("seed", range(3))
def test_many_long_prompts_in_rounds_too_small_for_them(policy, seed):
    """Stock settings cut such prompts in parts, which crashes with seeds on a CPU."""
    model, rng = contract_model(seed), np.random.default_rng(seed)
    policy.load_weights(model.named_parameters(), 1)
    requests = [
        Request(key, rng.integers(4, VOCAB, size=rng.integers(1, 310)).tolist(), True, key, 12)
        for key in range(64)
    ]
    for request, generation in zip(requests, policy.generate(requests, Sampling(0.7)), strict=True):
        expected = full_logps(model, request.ids, generation.ids, 0.7)
        assert generation.logps == pytest.approx(expected, **NEAR)


def test_the_models_own_sampling_settings_are_not_obeyed(policy):
    policy.load_weights(contract_model().named_parameters(), 1)
    generations = policy.generate([Request(key, [5, 6], True, key, 20) for key in range(40)], Sampling())
    assert len({g.ids[0] for g in generations}) > 5
    assert any(len(g.ids) == 20 for g in generations)


def test_the_process_keeps_its_settings(policy):
    assert "LD_PRELOAD" not in os.environ
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    assert torch.get_num_threads() == before + 1
    torch.set_num_threads(before)


def test_packed_weights_would_be_noticed(policy, folder, monkeypatch):
    """The start without the cure: new weights would not reach the packed ones."""
    monkeypatch.setattr(agent.policies.vllm_engine, "_contained", lambda cpu: contextlib.nullcontext())
    monkeypatch.setattr(torch, "set_num_threads", torch.set_num_threads)  # both are put back afterwards
    for name in ("LD_PRELOAD", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    with pytest.raises(PolicyError, match="packs weights at its start"):
        VLLMPolicy(folder, [STOP], window=320, eager=True)


def test_the_end_of_one_leaves_another_alone(policy, folder):
    model, request = contract_model(), Request(0, [5, 6], True, 0, 12)
    policy.load_weights(model.named_parameters(), 1)
    expected = policy.generate([request], Sampling())[0].ids
    other = VLLMPolicy(folder, [STOP], window=128, max_parallel=8, eager=True)
    ended = weakref.ref(other._engine)
    del other
    gc.collect()
    assert ended() is None
    assert policy.generate([request], Sampling())[0].ids == expected


def test_sleep_and_waking_up_by_new_weights(policy, monkeypatch):
    """As on an accelerator: vLLM's scheduler and executor do all of it, only the memory of a CPU stays."""
    monkeypatch.setattr(policy._engine, "cpu", False)
    core, request = policy._engine._core.engine_core, Request(0, [5, 6], True, 0, 12)
    policy.load_weights(contract_model().named_parameters(), 1)
    policy.generate([request], Sampling())
    for seed in (1, 2):
        model = contract_model(seed)
        policy.sleep()
        policy.sleep()
        assert core.model_executor.sleeping_tags == {"weights", "kv_cache"} and core.is_scheduler_paused()
        with pytest.raises(PolicyError, match="after sleep again"):
            policy.generate([request], Sampling())
        with pytest.raises(PolicyError, match="no value for"):
            policy.load_weights(list(model.named_parameters())[:-1], 2)
        with pytest.raises(PolicyError, match="after sleep again"):
            policy.generate([request], Sampling())
        policy.load_weights(model.named_parameters(), 3)
        assert not core.model_executor.sleeping_tags and not core.is_scheduler_paused()
        generation = policy.generate([request], Sampling())[0]
        assert generation.logps == pytest.approx(full_logps(model, [5, 6], generation.ids), **NEAR)


@pytest.mark.parametrize("eager", [True, False])
def test_another_architecture_with_its_head_untied(policy, tmp_path, eager):
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.12,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    other = VLLMPolicy(tmp_path, [STOP], window=128, max_parallel=8, eager=eager)
    for version in (1, 2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        other.load_weights(model.named_parameters(), version)
        requests = [Request(key, [5 + key] * 100, True, key, 12) for key in range(8)]
        for request, generation in zip(requests, other.generate(requests, Sampling()), strict=True):
            assert generation.logps == pytest.approx(full_logps(model, request.ids, generation.ids), **NEAR)
    weights = dict(model.named_parameters())
    del weights["lm_head.weight"]
    with pytest.raises(PolicyError, match=r"no value for lm_head\.weight"):
        other.load_weights(weights.items(), 3)


def test_half_precision(policy, folder):
    model = contract_model()
    other = VLLMPolicy(folder, [STOP], window=128, max_parallel=8, eager=True, dtype="bfloat16")
    other.load_weights(model.named_parameters(), 1)
    generation = other.generate([Request(0, [5, 6, 7], True, 0, 12)], Sampling())[0]
    assert generation.logps == pytest.approx(full_logps(model, [5, 6, 7], generation.ids), abs=0.1)


def test_two_processes_have_replicas_that_do_not_wait_for_each_other(folder, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, "-m", "tests.agent.vllm_ranks", str(folder), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("gathered") == 2
