"""The scorers with a model, on tiny random models: bge with and without FlagEmbedding, embed."""

import importlib.util
import shutil
import sys

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    BertTokenizer,
)

from bench.scorer import load_reranker, rollouts, shape, write_reranker
from credit.scorer import around_model, bge, make_scorer
from credit.stages.scpo import SCPO

has_flag = importlib.util.find_spec("FlagEmbedding") is not None
needs_flag = pytest.mark.skipif(not has_flag, reason="FlagEmbedding is not installed: `make setup-scorer`")

TEXTS = [
    "Observation: You arrive at shelf 1. On the shelf 1, you see a cup 2.\nAction: take cup 2 from shelf 1",
    "Observation: You are in the middle of a room.\nAction: go to shelf 1",
    "Observation: Nothing happens.\nAction: go to drawer 3",
    "Observation: You pick up the cup 2 from the shelf 1. " + "You see a cup. " * 12 + "\nAction: look",
]
PAIRS = [(a, b) for a in TEXTS for b in TEXTS]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    return str(write_reranker(tmp_path_factory.mktemp("reranker") / "model", TEXTS))


@pytest.fixture
def without_flag(monkeypatch):
    monkeypatch.setattr(bge, "load", load_reranker)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "model"
    words = sorted(
        {word for text in TEXTS for word in text.lower().replace(".", " ").split()} | {".", ":", ","}
    )
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)})
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


def alone(source, pair, **cut):
    """sigmoid(logit) of one pair without padding, by plain transformers."""
    network, tokenizer = load_reranker(source, "cpu", "float32")
    with torch.no_grad():
        logit = network.eval()(**tokenizer(*pair, return_tensors="pt", **cut)).logits.item()
    return 1 / (1 + np.exp(-logit))


def test_bge_is_the_sigmoid_of_the_classifier_whatever_the_batch(reranker, without_flag):
    want = [alone(reranker, pair) for pair in PAIRS]
    assert np.ptp(want) > 0.05
    for budget, padded in ((1, False), (1_000, None), (100_000, True)):
        scorer = make_scorer("bge", model=reranker, token_budget=budget)
        np.testing.assert_allclose(scorer.score(PAIRS), want, rtol=0, atol=1e-6)
        model = scorer.scorer.scorer
        tokenizer = model.tokenizer
        lengths = [len(tokenizer(*pair)["input_ids"]) for pair in PAIRS]
        assert scorer.lengths(PAIRS).tolist() == lengths
        assert scorer.account.scored == model.tokens_read == sum(lengths)
        assert padded is None or (scorer.account.padding > 0) == padded


def test_bge_gives_equal_texts_what_the_model_says_unless_told_otherwise(reranker, without_flag):
    scored = make_scorer("bge", model=reranker).score([(TEXTS[0], TEXTS[0])])[0]
    assert 0 < scored < 1 and scored == pytest.approx(alone(reranker, (TEXTS[0], TEXTS[0])), abs=1e-6)
    one = make_scorer("bge", model=reranker, identical="one")
    assert one.score([(TEXTS[0], TEXTS[0]), (TEXTS[0], TEXTS[1])])[0] == 1.0
    assert one.account.identical == one.lengths([(TEXTS[0], TEXTS[0])])[0]


def test_long_texts_lose_their_beginning(reranker, without_flag):
    ending = "Observation: You see a cup 2.\nAction: take cup 2 from shelf 1"
    scorer = make_scorer("bge", model=reranker, max_length=40)
    long = " ".join(f"Nothing happens {i}." for i in range(60)) + ending
    longer = " ".join(f"go to drawer {i}." for i in range(60)) + ending
    assert scorer.lengths([(long, TEXTS[2])]).tolist() == [40]
    short = TEXTS[2]
    assert scorer.score([(long, short)]) == pytest.approx(scorer.score([(longer, short)]), abs=1e-6)
    assert scorer.scorer.scorer.tokens_read == 80


def test_identity_follows_weights_tokenizer_and_options_not_the_place(reranker, without_flag, tmp_path):
    def identity(source, **options):
        return bge.Scorer(source, device="cpu", **options).identity

    here = identity(reranker)
    moved = tmp_path / "moved"
    shutil.copytree(reranker, moved)
    assert identity(str(moved)) == here
    assert identity(reranker, max_length=99) != here
    network, _ = load_reranker(str(moved), "cpu", "float32")
    with torch.no_grad():
        network.classifier.out_proj.bias += 1e-3
    network.save_pretrained(moved)
    changed = identity(str(moved))
    assert changed != here
    tokenizer = AutoTokenizer.from_pretrained(moved)
    tokenizer.add_tokens(["shelf 1"])
    tokenizer.save_pretrained(moved)
    assert identity(str(moved)) != changed


def test_what_cannot_be_a_reranker_is_refused(reranker, encoder, without_flag, tmp_path):
    with pytest.raises(
        ValueError, match=r"bge\.model: .*BertModel with 2 outputs, expected .*scorer.name=embed"
    ):
        make_scorer("bge", model=encoder)
    with pytest.raises(
        ValueError, match=r"bge\.model: no folder .*gone; expected a folder with a saved model"
    ):
        make_scorer("bge", model=str(tmp_path / "gone"))
    with pytest.raises(ValueError, match=r"bge\.model: no config\.json in"):
        make_scorer("bge", model=str(tmp_path))
    with pytest.raises(ValueError, match=r"bge\.identical: got 'ones'; did you mean 'one'"):
        make_scorer("bge", model=reranker, identical="ones")
    with pytest.raises(ValueError, match=r"bge\.precision: got 'float16' on cpu"):
        make_scorer("bge", model=reranker, device="cpu", precision="float16")
    with pytest.raises(ValueError, match=r"embed\.model: .* cannot be loaded"):
        (tmp_path / "config.json").write_text("{}")
        make_scorer("embed", model=str(tmp_path))


def test_a_missing_package_says_how_to_get_it(reranker, monkeypatch):
    monkeypatch.setitem(sys.modules, "FlagEmbedding", None)
    with pytest.raises(ImportError, match="credit.scorer.bge needs FlagEmbedding.*run `make setup-scorer`"):
        make_scorer("bge", model=reranker)


@needs_flag
def test_bge_is_what_flag_embedding_computes(reranker):
    from FlagEmbedding import FlagReranker

    theirs = FlagReranker(reranker, devices="cpu").compute_score(PAIRS, normalize=True)
    ours = make_scorer("bge", model=reranker, device="cpu").score(PAIRS)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours, [alone(reranker, pair) for pair in PAIRS], rtol=0, atol=1e-6)


@needs_flag
def test_a_name_that_cannot_be_downloaded_is_named(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=r"bge\.model: 'nobody/nothing' cannot be loaded"):
        make_scorer("bge", model="nobody/nothing")


@pytest.mark.gpu
def test_bge_in_half_precision_is_close(reranker, without_flag):
    half = make_scorer("bge", model=reranker, device="cuda").score(PAIRS)
    np.testing.assert_allclose(half, [alone(reranker, pair) for pair in PAIRS], rtol=0, atol=2e-2)


def test_embed_is_the_mapped_cosine_of_mean_states(encoder):
    network, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    vectors = {}
    for text in TEXTS:
        with torch.no_grad():
            state = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy()
        vectors[text] = state / np.linalg.norm(state)
    want = [1.0 if a == b else (1 + vectors[a] @ vectors[b]) / 2 for a, b in PAIRS]
    scorer = make_scorer("embed", model=encoder)
    np.testing.assert_allclose(scorer.score(PAIRS), want, rtol=0, atol=1e-6)
    assert [score for score, (a, b) in zip(scorer.score(PAIRS), PAIRS, strict=True) if a == b] == [1.0] * 4
    # each text is read once; the other mentions are saved
    single = sum(len(tokenizer(text)["input_ids"]) for text in TEXTS)
    assert scorer.account.scored == single
    differ = [pair for pair in PAIRS if pair[0] != pair[1]]
    assert scorer.account.dedupe == sum(scorer.lengths(differ)) - single


def test_scpo_credits_with_a_model_what_it_credits_with_its_scores(reranker, without_flag, tmp_path):
    table = rollouts(2, 12, 3)
    assert 0 < table.success.mean() < 1
    scores = {}

    class Plain:
        def __init__(self, scorer):
            self.scorer = scorer

        def score(self, pairs):
            """Pair by pair, one forward pass each."""
            for pair in dict.fromkeys(pairs):
                if pair not in scores:
                    scores[pair] = self.scorer.score([pair])[0]
            return np.array([scores[pair] for pair in pairs])

    stage = SCPO(theta=0.55, lam=0.5)
    whole = shape(table, stage, Plain(bge.Scorer(reranker)))
    matched = whole.columns["sibling_t"] >= 0
    assert 0 < matched.mean() < 0.9
    for _ in range(2):  # the second time from the file
        scorer = around_model(bge.Scorer(reranker), cache=str(tmp_path / "scores.sqlite"))
        result = shape(table, stage, scorer)
        assert result.columns["sibling_t"].tolist() == whole.columns["sibling_t"].tolist()
        np.testing.assert_allclose(result.columns["credit"], whole.columns["credit"], rtol=0, atol=1e-5)
    assert result.metrics["tokens_scored"] == 0 and result.metrics["tokens_saved_cache"] > 0
