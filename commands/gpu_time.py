"""An update's time: operations, bytes and rounds of each phase, from options and lengths of trajectories.

No accelerator has run any of it. What is assumed of the cards is in `commands.gpu_cards`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from commands.gpu_cards import DECODE_S, WAKE_S, Phase
from commands.gpu_memory import Memory, has_reference, scored_columns, tensor_parallel, training_of
from commands.gpu_models import SCORERS, model_shape
from configs.load import Loaded
from configs.schema import Config
from credit.scorer.bge import MAX_LENGTH
from rl.learner.memory import Shape, Training

UNEVEN = 1.02
"""Critical path over ideal of the rounds of micro-batches: the bound that `rl.learner.rounds` is held to."""
FAILED = 0.5
"""Assumed: share of trajectories that fail; SCPO compares each step of them with each of one success."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of a trajectory, from which tokens are counted; where None, `assumed` fills in.

    Attributes:
        steps: Mean steps.
        prompt: Mean prompt tokens per step (append form: tokens that a step adds).
        response: Mean response tokens per step.
    """

    steps: float | None = None
    prompt: float | None = None
    response: float | None = None

    def assumed(self, config: Config) -> tuple[float, float, float]:
        """Returns steps, prompt and response tokens: half the step limit, half the longest prompt, a quarter
        of the longest response.

        In the append form all steps share one row, taken to fill half the window: what the responses leave
        of it, divided by the steps, is the prompt of each.
        """
        steps = self.steps or config.env.max_steps / 2
        response = self.response or config.prompt.max_response_tokens / 4
        room = config.prompt.window - config.prompt.max_response_tokens
        added = max(1.0, config.prompt.window / 2 / steps - response)
        return steps, self.prompt or (room / 2 if config.prompt.form == "stepwise" else added), response


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of an update, all ranks together.

    Attributes:
        trajectories: How many.
        turns: Steps of all of them.
        rows: Rows that the learner reads.
        read: Tokens of those rows.
        sampled: Response tokens.
        added: Prompt tokens that the generator reads.
        row: Tokens of a row.
        pairs: Pairs of the scorer.
    """

    trajectories: int
    turns: float
    rows: float
    read: float
    sampled: float
    added: float
    row: float
    pairs: float


def tokens_of(config: Config, lengths: Lengths) -> Tokens:
    """Counts an update's tokens; step-wise every step is a row, else every trajectory."""
    steps, prompt, response = lengths.assumed(config)
    stepwise = config.prompt.form == "stepwise"
    turns = config.trajectories * steps
    pairs = FAILED * config.trajectories * steps**2 if config.scorer.name in SCORERS else 0.0
    return Tokens(
        trajectories=config.trajectories,
        turns=turns,
        rows=turns if stepwise else config.trajectories,
        read=turns * (prompt + response),
        sampled=turns * response,
        added=turns * prompt,
        row=(prompt + response) * (1 if stepwise else steps),
        pairs=pairs,
    )


def forward_operations(shape: Shape, read: float, sampled: float, row: float) -> tuple[float, float]:
    """Operations of a forward pass: of the blocks, and of the output layer.

    2 a weight and token, and 2 · layers · Q · row a token for attention (causal; Kaplan et al. 2020, arXiv
    2001.08361, §2.1). Embeddings are looked up, and only response tokens have logits.
    """
    output = shape.vocabulary * shape.hidden
    blocks = shape.parameters - output * (1 if shape.tied else 2)
    return read * 2 * (blocks + shape.layers * shape.queries * row), sampled * 2 * output


def phases(
    loaded: Loaded, memory: Memory, ranks: int, lengths: Lengths, columns: frozenset[str] | None = None
) -> tuple[Phase, ...]:
    """What each rank does in an update, phase by phase.

    Args:
        loaded: The configuration.
        memory: Of it on so many ranks: how many rows the generator holds at once.
        ranks: Processes, one per card.
        lengths: Of trajectories.
        columns: `scored_columns`, where they are known already.
    """
    config = loaded.config
    shape, training = model_shape(config.model.path), training_of(config, ranks)
    tokens = tokens_of(config, lengths)
    columns = scored_columns(loaded) if columns is None else columns
    shared = _share(ranks)
    passes = (config.train.mismatch != "off") + len(columns - {"logp_ref"})
    referring = (config.train.kl_coef > 0) + ("logp_ref" in columns)
    moved = training.b * shape.parameters
    away = moved if config.train.reference == "cpu" and not config.model.lora.r else 0
    reference = _pass("reference", shape, training, tokens, referring, sharded=bool(config.model.lora.r))
    if has_reference(config, columns) and away:
        reference = replace(reference, pcie=referring * away)
    gathered = shared * moved if training.stage == 3 else 0.0
    return (
        _generation(config, shape, training.b, tokens, memory, ranks),
        _scorer(config, tokens, ranks),
        reference,
        _pass("old log-probs", shape, training, tokens, passes),
        *_learning(config, shape, training, tokens),
        Phase("transfer", hbm=2 * moved, link=gathered, rounds=1, each=WAKE_S),
    )


def _share(ranks: int) -> float:
    """Share of a tensor that a rank sends in a ring that gathers or reduces and scatters it: (N - 1) / N."""
    return (ranks - 1) / ranks


def _generation(config: Config, shape: Shape, b: int, tokens: Tokens, memory: Memory, ranks: int) -> Phase:
    """Prompts are read once, none found in the cache; every round of decoding reads all weights.

    There are as many rounds as tokens per place, but at least those of a trajectory that runs to the step
    limit. Environments are taken to cost nothing. With tensor parallelism each layer sums twice.
    """
    shared = tensor_parallel(config)
    part = shared / ranks  # of the update that one generator plays
    context = tokens.row * (1.0 if config.prompt.form == "stepwise" else 0.5)
    places = tokens.trajectories * part
    if memory.cache is not None:
        places = min(places, max(1.0, memory.cache * shared / (shape.kv_bytes(b) * context)))
    places = min(places, config.rollout.max_parallel)
    longest = config.env.max_steps * tokens.sampled / tokens.turns
    rounds = max(tokens.sampled * part / places, longest)
    blocks, head = forward_operations(shape, tokens.read, tokens.sampled, tokens.row)
    cached = tokens.sampled * part * shape.kv_bytes(b) * context
    summed = 2 * shape.layers * shape.hidden * b * tokens.read * part
    return Phase(
        "generation",
        operations=(blocks + head) / ranks,
        hbm=(rounds * b * shape.parameters + cached) / shared,
        link=2 * _share(shared) * summed,
        rounds=rounds,
        each=DECODE_S,
    )


def _scorer(config: Config, tokens: Tokens, ranks: int) -> Phase:
    """Pairs are shared by the ranks; each is taken to be half as long as the longest allowed."""
    encoder = SCORERS.get(config.scorer.name)
    if encoder is None:
        return Phase("scorer")
    length = config.scorer.options.get("max_length", MAX_LENGTH) / 2
    weights = encoder.layers * (4 * encoder.hidden**2 + 2 * encoder.hidden * encoder.intermediate)
    each = length * 2 * (weights + 2 * encoder.layers * encoder.hidden * length)
    return Phase("scorer", operations=tokens.pairs * each / ranks)


def _rounds(read: float, training: Training) -> int:
    """Micro-batches of each rank for `read` tokens."""
    return math.ceil(read / (training.token_budget * training.ranks))


def _pass(
    name: str, shape: Shape, training: Training, tokens: Tokens, passes: int, *, sharded: bool = True
) -> Phase:
    """`passes` forward passes over all rows; under ZeRO-3 sharded weights are gathered in every round."""
    blocks, head = forward_operations(shape, tokens.read, tokens.sampled, tokens.row)
    rounds = passes * _rounds(tokens.read, training)
    gathers = rounds if sharded and training.stage == 3 else 0
    return Phase(
        name,
        operations=UNEVEN * passes * (blocks + head) / training.ranks,
        link=gathers * _share(training.ranks) * training.b * shape.parameters,
        rounds=rounds,
    )


def _learning(config: Config, shape: Shape, training: Training, tokens: Tokens) -> tuple[Phase, Phase, Phase]:
    """Forward and backward passes; what they send; the optimiser's steps.

    operations     3 forward passes, 1 more of the blocks with checkpointing; only 2 where weights are
                   frozen, and 6 an adapter's weight
    sent           (N − 1)/N of: 2 g A a step at ZeRO-0 and 1 (DeepSpeed reduces by all-reduce, also where
                   it scatters: `allreduce_and_scatter`), 2 g A a round at ZeRO-2, g A a round at ZeRO-3;
                   then b A a step, the new weights, at ZeRO-1 and 2; b Ψ twice a round at ZeRO-3
    a step         2 g + 36 bytes of memory a weight: gradient read, written in float32 and read for its
                   norm; master and moments read and written; the weight written
    offload        the share's gradients leave every round, its weights come back every step
    """
    train, n, a = config.train, training.ranks, training.trained(shape)
    g = 4 if training.stage is None else training.b
    per_pass = math.ceil(tokens.rows / train.minibatch_rows) if train.minibatch_rows else train.minibatches
    steps = train.epochs * per_pass
    rounds = steps * _rounds(tokens.read / per_pass, training)
    blocks, head = forward_operations(shape, tokens.read, tokens.sampled, tokens.row)
    factor = 2 if training.r else 3
    operations = train.epochs * (factor * (blocks + head) + training.checkpointing * blocks)
    operations += train.epochs * tokens.read * 6 * a if training.r else 0
    stage = training.stage or 0
    reductions = (2 * steps, 2 * steps, 2 * rounds, rounds)[stage]
    weights = (0, steps * training.b * a, steps * training.b * a, 0)[stage]
    if stage == 3:
        weights = 2 * rounds * training.b * shape.parameters
    share = a / n if stage else a
    moved = (2 * g + 36) * share * steps
    return (
        Phase("update", operations=UNEVEN * operations / n, rounds=rounds),
        Phase("between cards", link=_share(n) * (reductions * g * a + weights)),
        Phase(
            "optimiser",
            hbm=0 if training.offload else moved,
            host=moved if training.offload else 0,
            pcie=(rounds * g + steps * training.b) * share if training.offload else 0,
        ),
    )
