"""The comparison with reference numbers, and the comparison itself."""

import copy
import json

import pytest

from credit.golden.parity import run_parity

ROWS = {
    "group_id": ["g0", "g0", "g0"],
    "traj_id": ["t0", "t1", "t1"],
    "step_idx": [0, 0, 1],
    "anchor_obs": ["a", "a", "b"],
    "next_obs": ["success", "b", "c"],
    "action": ["x", "x", "y"],
    "step_reward": [10.0, 0.0, 0.0],
    "episode_reward": [10.0, 0.0, 0.0],
    "success": [True, False, False],
    "is_action_valid": [1, 1, 1],
}
ADVANTAGE = [10 - 10 / 3, -10 / 3, -10 / 3]
CASE = {
    "case": 7,
    "config": {"norm_adv_by_std_in_grpo": False, "compute_mean_std_cross_steps": True, "epsilon": 1e-6},
    "rows": ROWS,
    "token_level_rewards": [[0.0, 10.0], [0.0, 0.0], [0.0, 0.0]],
    "fp_sensitive": False,
    "row_advantage": ADVANTAGE,
    "row_advantage_f64": ADVANTAGE,
}


def write(folder, method, *cases):
    path = folder / f"{method}.json"
    path.write_text(json.dumps({"method": method, "cases": cases}))
    return path


def test_passes_failures_and_methods_not_built_are_told_apart(tmp_path):
    wrong = copy.deepcopy(CASE) | {"case": 8}
    wrong["row_advantage_f64"][1] += 1e-6
    write(tmp_path, "grpo", CASE, wrong)
    write(tmp_path, "zzz_unknown", {"case": 0})
    result = run_parity(tmp_path)
    assert (result.passed, result.failed, result.not_built) == (1, 1, ("zzz_unknown",))
    assert result.by_method == {"grpo": (1, 1)}
    assert result.failures[0].startswith("grpo case 8: row_advantage_f64: row 1 is -3.33333333")
    assert str(result).splitlines()[-2:] == ["not built: zzz_unknown", "1 passed, 1 failed"]


def test_one_file_and_an_extra_checker(tmp_path):
    path = write(tmp_path, "policy_loss", {"case": 0, "good": True}, {"case": 1, "good": False})
    result = run_parity(path, {"policy_loss": lambda case: None if case["good"] else "loss differs"})
    assert (result.passed, result.failed) == (1, 1)
    assert result.failures == ("policy_loss case 1: loss differs",)


def test_a_wrong_shape_is_a_failure_not_a_crash(tmp_path):
    path = write(tmp_path, "grpo", CASE | {"row_advantage_f64": [0.0]})
    assert "shape (3,), expected (1,)" in run_parity(path).failures[0]


def test_nothing_to_compare_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no golden files"):
        run_parity(tmp_path)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="no golden file; expected an object"):
        run_parity(tmp_path)


@pytest.mark.reference
@pytest.mark.parametrize(
    ("method", "cases"),
    [
        ("grpo", 75),
        ("rloo", 51),
        ("reinforce_pp", 47),
        ("gigpo", 96),
        ("hgpo", 81),
        ("graphgpo", 77),
        ("3spo", 55),
        ("t2po", 51),
        ("scpo_semantics", 49),
    ],
)
def test_reference_numbers(golden, method, cases):
    result = run_parity(golden / f"{method}.json")
    assert result.failures == ()
    assert result.passed == cases


@pytest.mark.reference
def test_the_whole_folder_names_what_is_not_built(golden):
    result = run_parity(golden)
    assert result.failed == 0 and result.passed == 582
    assert result.not_built == ("policy_loss",)  # its checker needs torch and is passed in
