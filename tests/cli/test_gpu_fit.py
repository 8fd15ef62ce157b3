"""`run.py plan`: sums by hand, exit codes, advice that holds, and the figures that presets and docs state."""

import re
import sys

import pytest

import run as cli
from commands import gpu_fit
from commands.gpu_fit import COUNTS, would_fit
from commands.gpu_memory import CARD, CONTEXT, GIB, memory_of
from commands.gpu_time import Lengths
from configs.load import experiments, load
from configs.text import ConfigError

PSI = 1_543_714_304  # Qwen2.5-1.5B
BUDGET = int(CARD * GIB)
STATING = [path for path in experiments() if " × 80 GB" in path.read_text()]


def parts(name, *overrides, ranks=1, budget=BUDGET):
    found = memory_of(load(name, overrides), ranks, budget)
    return found, {part.name: part for part in found.parts}


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["run.py", "plan", *words])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code or 0, capsys.readouterr()


def test_parts_by_hand():
    """ZeRO-2 on 4 ranks: 2Ψ, 2Ψ/4, 12Ψ/4, a step of 6Ψ/4, a reference of 2Ψ, and vLLM's half."""
    found, part = parts("alfworld_1.5b", "train.zero_stage=2", ranks=4)
    assert part["weights"].backward == part["reference"].generating == 2 * PSI
    assert (part["gradients"].backward, part["gradients"].generating) == (PSI // 2, 0)
    assert part["optimiser"].step == 3 * PSI and part["optimiser's step"].step == 6 * PSI // 4
    assert part["DeepSpeed's buffers"].backward == 10**9
    assert part["scorer"].step == 2 * 568_000_000
    # A batch of 32,768 tokens: two streams of 1024 and two of 4096 in float16, and 5 % lost between blocks.
    assert part["scorer's batch"].generating == int(1.05 * 32768 * 2 * 2 * (1024 + 4096))
    generator = part["generator"]
    assert generator.generating == BUDGET // 2 + generator.backward
    expected = (2 + 3 + 2) * PSI + 2 * 568_000_000 + generator.generating + CONTEXT
    expected += part["scorer's batch"].generating
    assert found.totals[2] == expected
    beside = 16384 * 2 * (3 * 8960 + 4 * 1536) + 12 * 128 * 151_936 + 2**30
    assert found.cache == BUDGET // 2 - 2 * PSI - beside
    assert found.sequences == found.cache // (2560 * 28_672) and found.in_flight == 32


@pytest.mark.parametrize(
    ("overrides", "absent"),
    [
        (["train.kl_coef=0"], "reference"),
        (["credit=gigpo", "scorer.name=lexical"], "scorer"),
        (["generator.backend=server", "generator.urls=http://127.0.0.1:1"], "generator"),
    ],
)
def test_what_is_not_used_takes_nothing(overrides, absent):
    assert absent in parts("alfworld_1.5b")[1]
    assert absent not in parts("alfworld_1.5b", *overrides)[1]


def test_what_moves_memory():
    _, plain = parts("alfworld_1.5b")
    found, moved = parts("alfworld_1.5b", "train.offload=true")
    assert "optimiser" not in moved and found.host == 18 * PSI
    _, awake = parts("alfworld_1.5b", "rollout.staleness=1")
    assert awake["generator"].backward == awake["generator"].generating > plain["generator"].backward
    _, copied = parts("alfworld_1.5b", "generator.backend=torch")
    assert copied["generator"].backward == 2 * PSI
    assert copied["generator"].generating == 2 * PSI + 128 * 2560 * 28_672
    _, adapted = parts("alfworld_1.5b", "model.lora.r=64")
    assert adapted["optimiser"].step < plain["optimiser"].step / 10
    assert adapted["activations"].backward < plain["activations"].backward  # no gradient of the head
    assert "reference" not in adapted  # the model without its adapters


def test_a_reference_in_main_memory_is_on_the_card_while_it_scores():
    found, plain = parts("alfworld_1.5b")
    moved, part = parts("alfworld_1.5b", "train.reference=cpu")
    reference = part["reference"]
    assert (reference.backward, reference.step, reference.generating) == (0, 0, 0)
    assert reference.scoring == moved.host - found.host == 2 * PSI
    probed = parts("alfworld_1.5b", "credit=opsd", "train.reference=cpu")[1]
    assert probed["activations"].generating == probed["activations"].scoring > 0  # a teacher scores earlier
    assert plain["activations"].generating == 0


def test_14b_fits_eight_cards():
    """2Ψ/8 + 2Ψ/8 + 12Ψ/8 of state, and a reference of 2Ψ that is there only while it scores."""
    words = ["model.path=Qwen/Qwen2.5-14B-Instruct", "generator.memory=0.45"]
    words.append("model.gradient_checkpointing=true")
    found, part = parts("alfworld_7b", *words, ranks=8)
    assert part["reference"].scoring == 2 * 14_770_033_664 and found.fits
    assert part["optimiser"].step == 12 * 14_770_033_664 // 8
    assert not parts("alfworld_7b", *words, "train.reference=gpu", ranks=8)[0].fits


def test_the_command_lines_default_is_the_cards_memory():
    from commands.cli import gpu_fit as front

    assert front.CARD == CARD


def test_the_torch_engine_has_a_float32_copy_too():
    """Ψ parameters in bfloat16: gradients and master of 4 bytes, moments of 8; gradients are not saved."""
    loaded, part = load("alfworld_1.5b", torch := ["train.engine=torch"]), parts("alfworld_1.5b", *torch)[1]
    assert (part["weights"].step, part["gradients"].step, part["optimiser"].step) == (
        2 * PSI,
        4 * PSI,
        12 * PSI,
    )
    facts = dict(gpu_fit._facts(loaded, memory_of(loaded, 1, BUDGET), 1, Lengths()))
    assert facts["a checkpoint"] == "20.1 GiB, 2 are kept: 60.4 GiB of disk while one is written"
    assert pytest.approx(20.13, abs=0.01) == 14 * PSI / GIB
    sharded = load("alfworld_1.5b")  # DeepSpeed writes the bfloat16 weights once more, on all ranks together
    facts = dict(gpu_fit._facts(sharded, memory_of(sharded, 4, BUDGET), 4, Lengths()))
    assert facts["a checkpoint"] == "23.0 GiB, 2 are kept: 69.0 GiB of disk while one is written"
    best = load("alfworld_1.5b", ["checkpoint.keep_best=eval/success", "checkpoint.keep=1"])
    facts = dict(gpu_fit._facts(best, memory_of(best, 4, BUDGET), 4, Lengths()))
    assert facts["a checkpoint"].endswith("1 are kept, and the best: 69.0 GiB of disk while one is written")


def test_exit_codes(monkeypatch, capsys):
    code, out = command(monkeypatch, capsys, "alfworld_1.5b", "--gpus", "1")
    assert code == 0 and "fits: " in out.out and "alfworld_1.5b on 1 × 79.15 GiB" in out.out
    code, out = command(monkeypatch, capsys, "alfworld_7b", "--gpus", "1")
    assert code == 1 and "does not fit" in out.out and "it would with any of: --gpus 4 | " in out.out
    code, out = command(monkeypatch, capsys, "alfworld_cpu")
    assert code == 0 and "1 M" in out.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alfworld_1.5b", "model.path=some/model"], "not one of the models known by heart"),
        (["alfworld_1.5b", "prompt.window=40000"], "reads at most 32768 tokens"),
        (["alfworld_1.5b", "model.path=agent/assets/missing"], "no folder with a config.json"),
    ],
)
def test_refusals(monkeypatch, capsys, words, message):
    code, out = command(monkeypatch, capsys, *words)
    assert code == 2 and message in out.err


@pytest.mark.parametrize(
    ("name", "ranks", "gib"), [("alfworld_7b", 1, 79), ("alfworld_1.5b", 1, 24), ("webshop_7b", 2, 79)]
)
def test_advice_holds(name, ranks, gib):
    advice = would_fit(name, [], ranks, gib * GIB)
    assert advice
    for line in advice:
        counts = re.findall(r"--gpus (\d+)", line)
        words = re.sub(r"--gpus \d+", "", line).split()
        found = memory_of(load(name, words), int(counts[0]) if counts else ranks, gib * GIB)
        assert found.fits, line


def test_no_advice_where_nothing_helps(monkeypatch, capsys):
    assert would_fit("alfworld_7b", [], 1, 2 * GIB) == []
    code, out = command(monkeypatch, capsys, "alfworld_7b", "--memory", "2")
    assert code == 1 and "it would" not in out.out


def test_vllm_without_room_for_a_row_does_not_fit(monkeypatch, capsys):
    code, out = command(monkeypatch, capsys, "alfworld_1.5b", "generator.memory=0.05")
    assert code == 1 and "vLLM has no room for one row" in out.out


def test_tokens_are_counted_by_what_is_known(monkeypatch, capsys):
    _, out = command(
        monkeypatch, capsys, "alfworld_1.5b", "--steps", "10", "--prompt", "900", "--response", "100"
    )
    assert "128 trajectories × 10 steps × (900 prompt + 100 response tokens) = 1.3 M tokens read" in out.out
    assert Lengths().assumed(load("alfworld_1.5b").config) == (25, 1024, 128)
    steps, added, response = Lengths().assumed(load("alfworld_cpu").config)
    assert steps * (added + response) == pytest.approx(1536 / 2)


@pytest.mark.parametrize("path", STATING, ids=lambda path: path.stem)
def test_presets_state_what_is_computed(path):
    """`At least N × M GB` is the fewest ranks that fit, and the next fewer do not."""
    (stated,) = re.findall(r"At least (\d+) × (\d+) GB", path.read_text())
    ranks, gib = map(int, stated)
    assert gib == 80  # what is sold; PyTorch finds `CARD` on it
    fitting = [n for n in COUNTS if memory_of(load(path.stem), n, BUDGET).fits]
    assert fitting[0] == ranks
    assert max(memory_of(load(path.stem), ranks, BUDGET).totals) <= 0.95 * BUDGET
    assert load(path.stem).config.generator.backend == "vllm"


def test_ten_presets_state_what_they_need():
    assert len(STATING) == 10


def test_markdown_goes_between_its_markers(tmp_path):
    page = tmp_path / "gpu.md"
    page.write_text(
        "a\n<!-- plan alfworld_7b -->\nold\n<!-- /plan -->\nb\n<!-- plan x -->\nkept\n<!-- /plan -->\n"
    )
    gpu_fit._write("alfworld_7b", "new", page)
    assert page.read_text() == (
        "a\n<!-- plan alfworld_7b -->\nnew\n<!-- /plan -->\nb\n<!-- plan x -->\nkept\n<!-- /plan -->\n"
    )
    with pytest.raises(ConfigError, match="no block <!-- plan other -->"):
        gpu_fit._write("other", "new", page)


def test_the_tables_in_the_docs_are_current(monkeypatch, capsys):
    page = gpu_fit.EVIDENCE.read_text()
    named = re.findall(r"<!-- plan (\S+) -->", page)
    assert set(named) == {path.stem for path in STATING}
    for name in named:
        written = re.search(rf"<!-- plan {re.escape(name)} -->\n(.*?)\n<!-- /plan -->", page, re.DOTALL)[1]
        loaded = load(name)
        ranks = gpu_fit._fewest(loaded, BUDGET)
        assert written == gpu_fit._markdown(loaded, memory_of(loaded, ranks, BUDGET), ranks, Lengths(), []), (
            name
        )
