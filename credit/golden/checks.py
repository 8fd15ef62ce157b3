"""One checker per method: None if a golden case agrees with ours, else what differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from credit.golden.cases import (
    FLOAT32_TOLERANCE,
    FLOAT64_TOLERANCE,
    INVALID_PENALTY,
    compare_advantage,
    difference,
    estimate,
    golden_table,
    inputs,
    unit_of,
)
from credit.parts.t2po_rules import resample
from credit.parts.token_rows import per_token
from credit.pipeline import Pipeline
from credit.signals import Context
from credit.stages.gigpo import GiGPO
from credit.stages.graphgpo import GraphGPO
from credit.stages.grpo import GRPO
from credit.stages.hgpo import HGPO
from credit.stages.reinforce_pp import ReinforcePP
from credit.stages.returns import Returns
from credit.stages.rloo import RLOO
from credit.stages.scpo import allocate
from credit.stages.sso import (
    n_rollouts,
    new_statistics,
    novelty_weight,
    reloaded,
    state_score,
    step_advantage,
    step_reward,
    update_statistics,
)
from credit.statistics import codes

Checker = Callable[[dict[str, Any]], str | None]
"""Takes a case; returns None if it passes, else what differs."""


def check_grpo(case: dict[str, Any]) -> str | None:
    """Row advantages of verl-agent's GRPO (and Dr.GRPO's, without std)."""
    config = case["config"]
    stage = GRPO(
        norm="mean_std" if config["norm_adv_by_std_in_grpo"] else "mean",
        unit=unit_of(config),
        lone="raw",
        eps=config["epsilon"],
    )
    single = replace(stage, fp32_reference_compat=True)
    return compare_advantage(
        case, "row_advantage", estimate(case, stage).advantage, estimate(case, single).advantage
    )


def check_rloo(case: dict[str, Any]) -> str | None:
    """Row advantages of verl-agent's RLOO."""
    got = estimate(case, RLOO(unit=unit_of(case["config"]), lone="raw")).advantage
    return compare_advantage(case, "row_advantage", got, got)


def check_gigpo(case: dict[str, Any]) -> str | None:
    """Returns, anchor groups, both terms and the sum of the public GiGPO code."""
    config = case["config"]
    shaper = Returns(gamma=config["gamma"], invalid_penalty=INVALID_PENALTY)
    stage = GiGPO(
        norm=config["mode"].removesuffix("_norm"),
        omega=config["step_advantage_w"],
        eps=config["epsilon"],
        anchors="similarity" if config["enable_similarity"] else "exact",
        similarity=config["similarity_thresh"],
        unit="rows",
        lone="raw",
    )
    returns = Pipeline((shaper, stage)).run(golden_table(case)).returns
    problem = difference("step_rewards_in", returns, case["step_rewards_in"], FLOAT32_TOLERANCE)
    double = estimate(case, stage, case["step_rewards_in"])
    single = estimate(case, replace(stage, fp32_reference_compat=True), case["step_rewards_in"])
    clusters = codes(double.columns["anchor_group"].tolist()).tolist()
    if problem is None and clusters != codes(case["step_group"]).tolist():
        problem = f"step_group: {clusters}, expected {case['step_group']}"
    for name, column in (("episode_advantage", "episode"), ("step_advantage", "step")):
        problem = problem or compare_advantage(case, name, double.columns[column], single.columns[column])
    return problem or compare_advantage(case, "row_advantage", double.advantage, single.advantage)


def check_reinforce_pp(case: dict[str, Any]) -> str | None:
    """Token advantages of REINFORCE++ and its baseline variant; 0 where the public code raises."""
    config = case["config"]
    if config["variant"] == "reinforce_plus_plus":
        stage = ReinforcePP(gamma=config["gamma"])
    else:
        stage = ReinforcePP(variant="baseline", unit=unit_of(config), lone="raw")
    ours = _by_token(case, stage)
    if case["error"]:
        return difference("token_advantage", ours, [0.0] * len(ours), 0.0)
    # in float32 a number of tokens + 1e-8 is that number
    biased = _by_token(case, replace(stage, count_eps=1e-8))
    single, double = (np.ravel(case[f"token_advantage{suffix}"]) for suffix in ("", "_f64"))
    return difference("token_advantage_f64", biased, double, FLOAT64_TOLERANCE) or difference(
        "token_advantage", ours, single, FLOAT32_TOLERANCE
    )


def _by_token(case: dict[str, Any], stage: ReinforcePP) -> np.ndarray:
    """The advantage of every token of the padded [rows, L] layout, flattened; 0 in padding."""
    table, signals, rows = inputs(case)
    advantage = per_token(table, stage.estimate(table, signals, Context()).advantage)
    position = np.arange(table.offsets[-1]) - np.repeat(table.offsets[:-1], table.length)
    padded = np.zeros_like(np.array(case["token_level_rewards"], ndmin=2))
    padded[np.repeat(rows, table.length), position] = advantage
    return padded.ravel()


def check_hgpo(case: dict[str, Any]) -> str | None:
    """Returns and row advantages of the public HGPO code."""
    config = case["config"]
    shaper = Returns(gamma=config["gamma"], invalid_penalty=INVALID_PENALTY)
    stage = HGPO(
        history=config["history_length"],
        alpha=config["length_weight_alpha"],
        norm=config["mode"].removesuffix("_norm"),
        base_group=config["base_group"],
        eps=config["epsilon"],
        unit="rows",
        lone="raw",
    )
    returns = Pipeline((shaper, stage)).run(golden_table(case)).returns
    problem = difference("step_rewards_in", returns, case["step_rewards_in"], FLOAT32_TOLERANCE)
    single = replace(stage, fp32_reference_compat=True)
    double, single = (estimate(case, s, case["step_rewards_in"]).advantage for s in (stage, single))
    return problem or compare_advantage(case, "row_advantage", double, single)


def check_graphgpo(case: dict[str, Any]) -> str | None:
    """Distances, returns and row advantages of the public GraphGPO code."""
    config, rows = case["config"], case["rows"]
    shaper = GraphGPO(
        gamma=config["gamma"],
        normalize_distance=config["normalize_distance"],
        nodes="similarity" if config["enable_similarity"] else "exact",
        similarity=config["similarity_thresh"],
    )
    stage = GiGPO(norm=config["mode"].removesuffix("_norm"), eps=config["epsilon"], unit="rows", lone="raw")
    whole = Pipeline((Returns(invalid_penalty=INVALID_PENALTY), shaper, stage)).run(golden_table(case))
    problem = difference("step_rewards_in", whole.returns, case["step_rewards_in"], FLOAT32_TOLERANCE)
    penalty = INVALID_PENALTY * (1 - np.array(rows["is_action_valid"], dtype=np.float64))
    problem = problem or difference(
        "graph_returns", whole.returns + penalty, case["graph_returns"], FLOAT32_TOLERANCE
    )
    for column, place in (("distance", "anchor_obs"), ("next_distance", "next_obs")):
        known = [case["distance_to_goal"][group] for group in rows["group_id"]]
        # the public code lists one anchor of several similar ones
        listed = np.array([text in d for d, text in zip(known, rows[place], strict=True)], dtype=bool)
        want = [d[text] for d, text in zip(known, rows[place], strict=True) if text in d]
        problem = problem or difference(column, whole.columns[f"graphgpo.{column}"][listed], want, 0.0)
    double = _graphgpo_advantage(case, stage)
    single = _graphgpo_advantage(case, replace(stage, fp32_reference_compat=True))
    return problem or compare_advantage(case, "row_advantage", double, single)


def _graphgpo_advantage(case: dict[str, Any], stage: GiGPO) -> np.ndarray:
    columns, config = estimate(case, stage, case["step_rewards_in"]).columns, case["config"]
    return config["episode_advantage_w"] * columns["episode"] + config["step_advantage_w"] * columns["step"]


def check_3spo(case: dict[str, Any]) -> str | None:
    """Counts, state scores, numbers of rollouts, step rewards and advantages of the public 3SPO code."""
    config, states = case["config"], list(case["stats"])
    statistics = update_statistics(
        new_statistics(), [(entry["states"], entry["success"]) for entry in case["history"]]
    )
    counts = np.array([statistics["counts"].get(state, (0, 0)) for state in states])
    score = state_score(
        *counts.T, statistics["t"], alpha=config["alpha"], xi=config["xi"], zeta=config["zeta"]
    )
    weight = novelty_weight(counts[:, 0], config["omega_k"])
    number = {state: i for i, state in enumerate(states)}
    here, following = (
        np.array([number[step[key]] for step in case["steps"]], dtype=np.int64) for key in ("s", "s_next")
    )
    success = np.array([step["r_success"] for step in case["steps"]])
    reward = step_reward(score[here], score[following], weight[here], here != following, success)
    figures = {
        "t": (np.array([statistics["t"]]), [case["t"]]),
        "t_after_reload": (np.array([reloaded(statistics)["t"]]), [case["t_after_reload"]]),
        "n_total": (counts[:, 0], [case["stats"][state]["n_total"] for state in states]),
        "n_success": (counts[:, 1], [case["stats"][state]["n_success"] for state in states]),
        "n_rollouts": (n_rollouts(score, config["g_max"]), list(case["n_rollouts"].values())),
        "score": (score, list(case["score"].values())),
        "omega": (weight, list(case["omega"].values())),
        "reward": (reward, [step["reward"] for step in case["steps"]]),
    }
    for name, (got, want) in figures.items():
        tolerance = FLOAT64_TOLERANCE if name in ("score", "omega", "reward") else 0.0
        if problem := difference(name, got, want, tolerance):
            return problem
    for norm, removed in (("mean", "True"), ("mean_std", "False")):
        got = step_advantage(reward, [step["s"] for step in case["steps"]], norm)
        want = case["step_advantage_grouped_by_s"][removed]
        if problem := difference(f"step_advantage {norm}", got, want, FLOAT32_TOLERANCE):
            return problem
    return None


def check_t2po(case: dict[str, Any]) -> str | None:
    """Which turns T2PO's public rule plays again, and the scores of those it keeps."""
    candidates = iter(np.array(case["candidate_scores"], dtype=np.float64))
    score, tries = resample(
        next(candidates),
        np.array(case["prev_score"], dtype=np.float64),
        lambda rows: next(candidates)[rows],
        first_step=case["is_first_step"],
        **case["config"],
    )
    if [rows.tolist() for rows in tries] != case["regenerated_rows_per_attempt"]:
        return f"regenerated: {tries}, expected {case['regenerated_rows_per_attempt']}"
    return difference("final_score", score, case["final_score"], 0.0)


def check_scpo_semantics(case: dict[str, Any]) -> str | None:
    """Every reading of SCPO's allocation: rule x order x pick."""
    matrix = np.array(case["M"], dtype=np.float64).reshape(case["n_ref"], case["n_failed"])
    for reading, credits in case["credits"].items():
        rule, order, pick = reading.split("|")
        position, credit = allocate(
            matrix,
            case["theta"],
            case["lam"],
            order=order,
            pick=pick,
            monotone="running_max" if rule == "runmax" else rule,
        )
        want_position, want_credit = np.full(len(position), -1.0), np.zeros(len(position))
        for v, (j, r) in credits.items():
            want_position[int(v)], want_credit[int(v)] = j, r
        problem = difference(f"{reading} position", position, want_position.tolist(), 0.0) or difference(
            f"{reading} r", credit, want_credit.tolist(), FLOAT64_TOLERANCE
        )
        if problem:
            return problem
    return None


CHECKERS: dict[str, Checker] = {
    "grpo": check_grpo,
    "rloo": check_rloo,
    "gigpo": check_gigpo,
    "reinforce_pp": check_reinforce_pp,
    "hgpo": check_hgpo,
    "graphgpo": check_graphgpo,
    "3spo": check_3spo,
    "t2po": check_t2po,
    "scpo_semantics": check_scpo_semantics,
}
