"""Makes docs/credit.md: every credit method and stage, from the method files and the stages' docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator

from commands.docs.published import HEADER, published_rows
from configs.methods import CONFIGS, methods
from configs.protocol import flat, protocols, read_protocol
from configs.show import as_typed
from credit.base import AuxLoss, Estimator, Filter, Reweighter, Shaper, Stage, Steer
from credit.pipeline import Pipeline
from credit.registry import all_stages

KINDS = {
    Steer: "steering",
    Filter: "filter",
    Shaper: "shaper",
    Estimator: "estimator",
    Reweighter: "reweighter",
    AuxLoss: "loss",
}
COST = {
    "logp_sampled": "a forward pass where weights have moved on or the generator computes otherwise",
    "entropy": "a forward pass over the update's tokens",
    "logp_ref": "a forward pass of the reference",
    "logp_peer": "a forward pass with a sibling's text in the context",
    "logp_hindsight": "a forward pass with the outcome in the context",
    "pair_scorer": "a similarity for each pair of different step texts",
    "continuations": "rollouts from the middle of trajectories",
}
"""Token column or service → what it costs per update."""

_ABOUT = """\
A method is a list of stages: filters choose groups, shapers change returns, one estimator compares rows and
makes the advantage, reweighters change it, losses are added to the policy loss. Every stage is linear in the
rows unless it says otherwise; what it needs besides the step table, and what that costs, is in the tables.
Stages are chosen and set as in [options](options.md); [replay](replay.md) compares methods on a recording.

Some steps are not trained on: responses cut by length (`train.mask_truncated`), and those that the sampler
computed too differently (`train.mismatch=mask`). With `train.masked_rows=abstain`, the default, no statistic
over peers includes them. Of outcomes 1, 1, 0, 0 with the second left out `dr_grpo` makes ⅔, –, −⅓, −⅓. A
trajectory abstains if all of its steps do. All steps stay in trajectories, histories and graphs, and can be
matched as siblings: they still happened, they are only left out of comparisons.

With `vote` they count like any other: ½, –, −½, −½. That is what public code does, which masks after credit;
the advantages trained on then no longer sum to 0 in a group. If the mask does not depend on the response,
voting is less noisy: abstaining adds 3, 9 and 24 % to the gradient's standard deviation with 10, 25 and 50 %
masked in groups of 8. If the mask depends on the response, as with cut ones, masked responses are never
punished and spread, with `abstain` more than with `vote`: then it is better to mask none
(`train.mask_truncated=false`).

What a shaper or reweighter really changes is measured at every update: the advantage with the stage is
compared with that of the same method without it (`credit/STAGE/effect_*` in [metrics](metrics.md):
correlation, distance, steps changed, signs turned, and, where a stage credits particular steps, how many of
them end above 0). The run's report, the viewer, the notes below an ablation and a replay show it. A stage
before one that asks a service is not measured, since the service would have to be asked twice. A correlation
near 1 means that training with the stage is nearly training without it: check it before explaining a
difference in success.
"""

_PUBLISHED = """\
A method's plain values are this project's, the same in every environment. `credit.settings: published`, which
the GPU presets set, overrides them with those of the method's public code in the environment, options outside
credit included; the command line and files based on the preset override both. Values that differ from the
plain ones (of the method and the GPU preset) are bold. A source is repository\\@commit file:line, and each
value in `configs/credit/` has its line beside it (genalyu/3SPO includes the files of verl-agent). A method
that is not in the table has no public code with settings for these environments and keeps its plain values;
`run.py show` says so.
"""
_PROTOCOLS = """\
A method's figures also depend on choices that papers seldom mention. `protocol=verl_agent` takes those of the
public code, with the rest of its recipe; `protocol=recommended`, which the GPU presets have, takes this
project's. `run.py show alfworld_1.5b --against protocol/verl_agent` lists what differs, where it comes from
and what it changes. Figures made with different protocols cannot be compared.
"""


def render() -> str:
    """Returns the page after its title."""
    found = {
        name: (_comment(name), Pipeline.from_yaml(CONFIGS / "credit" / f"{name}.yaml")) for name in methods()
    }
    overview = [_method_row(name, comment, pipeline) for name, (comment, pipeline) in found.items()]
    parts = [
        _ABOUT,
        "## Methods\n",
        _table(("method", "stages", "needs", "cost of that", "source"), overview),
        *(f"### `{name}`\n\n{_prose(comment)}\n" for name, (comment, _) in found.items()),
        "## Published settings per method and environment\n",
        _PUBLISHED,
        _table(HEADER, published_rows()),
        _protocol_part(),
        "## Stages\n",
        _table(("stage", "kind", "equation", "source"), [_stage_row(n, s) for n, s in all_stages().items()]),
        *(_section(name, stage) for name, stage in all_stages().items()),
    ]
    return "\n".join(parts)


def _protocol_part() -> str:
    """The choices of the shipped protocols, one row per switch."""
    read = {name: read_protocol(name) for name in protocols()}
    options = dict.fromkeys(option for protocol in read.values() for option in protocol.changes)
    rows = []
    for option in options:
        cells = []
        for protocol in read.values():
            chosen = flat(protocol.switches)
            cells.append(f"`{as_typed(chosen[option])}`" if option in chosen else "–")
        rows.append((f"`{option}`", *cells))
    header = ("switch", *(f"`{name}`" for name in read))
    missing = "\n".join(f"- {_prose(line)}" for line in read["verl_agent"].not_reproduced)
    return (
        f"## Protocols\n\n{_PROTOCOLS}\n{_table(header, rows)}\n"
        f"What no option reproduces of the public code:\n\n{missing}\n"
    )


def _method_row(name: str, comment: str, pipeline: Pipeline) -> tuple[str, ...]:
    chain = " → ".join(_link(stage.name()) for stage in pipeline.stages)
    needs = [*sorted(pipeline.requires), *sorted(pipeline.token_columns)]
    costs = [COST.get(need, f"that of `{need}`") for need in needs]
    costs += [f"up to {stage.max_batches} rollouts per update" for stage in pipeline.filters]
    cost = "; ".join(dict.fromkeys(filter(None, costs)))
    return f"[`{name}`](#{name})", chain, _codes(needs), cost or "none", _sources(comment)


def _stage_row(name: str, stage: type[Stage]) -> tuple[str, ...]:
    text = _docstring(stage)
    return _link(name), _kind(stage), _code(_equation(text)), _sources(text)


def _section(name: str, stage: type[Stage]) -> str:
    default = stage()
    needs = _codes([*sorted(default.requires), *sorted(default.token_columns)])
    facts = f"{_kind(stage).capitalize()}. Needs: {needs}. [Options](options.md#credit-stage-{name})."
    parts = [f"### Stage `{name}`", facts, "\n\n".join(_blocks(_docstring(stage)))]
    if stage.columns_doc:
        parts.append(
            "Columns:\n" + "\n".join(f"- `{key}`: {_prose(doc)}" for key, doc in stage.columns_doc.items())
        )
    return "\n\n".join(parts) + "\n"


def _comment(method: str) -> str:
    """The comment at the top of a method file."""
    lines = (CONFIGS / "credit" / f"{method}.yaml").read_text(encoding="utf-8").splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(line.removeprefix("#").strip() for line in lines[:first])


def _docstring(stage: type[Stage]) -> str:
    return inspect.cleandoc(stage.__doc__ or "")


def _equation(text: str) -> str:
    """The first paragraph, on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _kind(stage: type[Stage]) -> str:
    return next(word for kind, word in KINDS.items() if issubclass(stage, kind))


def _sources(text: str) -> str:
    """Links to the papers that a text cites; `no paper` where it says so, – where it says nothing."""
    ids = dict.fromkeys(re.findall(r"arXiv\s+(\d{4}\.\d{4,5})", text))
    return ", ".join(f"[{paper}](https://arxiv.org/abs/{paper})" for paper in ids) or (
        "no paper" if re.search(r"\bno paper\b", text, re.IGNORECASE) else "–"
    )


def _blocks(text: str) -> Iterator[str]:
    """Yields the paragraphs; indented ones (equations, lists of options) become code blocks."""
    for paragraph in re.split(r"\n\s*\n", text):
        lines: list[str] = []
        for line in [*paragraph.splitlines(), None]:
            indented = line is not None and line.startswith("    ")
            if lines and (line is None or indented != lines[0].startswith("    ")):
                yield _block(lines)
                lines = []
            if line is not None:
                lines.append(line)


def _block(lines: list[str]) -> str:
    if lines[0].startswith("    "):
        return "```text\n" + inspect.cleandoc("\n".join(["", *lines])) + "\n```"
    return _prose("\n".join(lines))


def _prose(text: str) -> str:
    """Escapes all markdown except code spans."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([<*~|\[\]])", r"\\\1", p) for p in parts)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _link(stage: str) -> str:
    return f"[`{stage}`](#stage-{stage})"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [
        header,
        ("---",) * len(header),
        *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
