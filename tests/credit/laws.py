"""Every stage and method on random tables, for laws."""

from hypothesis import settings
from hypothesis import strategies as st

from credit.parts.continuations import Segment
from credit.scorer import make_scorer


class Played:
    """A `continuations` service that played nothing: every segment gains the same."""

    def segments(self, table, candidates, samples):
        return [Segment(c.trajectory, c.start, c.end, 0.5, 0.25, 0.75, samples) for c in candidates]


SERVICES = {
    "pair_scorer": make_scorer("lexical"),
    "continuations": Played(),
    "judge": lambda table, success, failure: (0, 1),
}


FAST = settings(max_examples=12, deadline=None, derandomize=True)


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["go", "take", "look"]), st.booleans()),
    min_size=1,
    max_size=4,
)


groups = st.lists(st.lists(st.tuples(st.booleans(), steps), min_size=1, max_size=4), min_size=0, max_size=3)


def columns_of(groups, scale=10.0):
    """Columns of groups of (success, [(place, action, valid), …]); anchors differ from observations."""
    rows, trajectory = [], 0
    for group, trajectories in enumerate(groups):
        for success, path in trajectories:
            for t, (place, action, valid) in enumerate(path):
                last = t == len(path) - 1
                rows.append(
                    (
                        group,
                        trajectory,
                        t,
                        scale * success * last,
                        scale * success,
                        success,
                        place,
                        action,
                        valid,
                    )
                )
            trajectory += 1
    names = ("group", "trajectory", "t", "reward", "outcome", "success", "anchor", "action", "valid")
    table = (
        dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        if rows
        else {name: [] for name in names}
    )
    table["observation"] = [f"You are at {place}. Nothing happens." for place in table["anchor"]]
    return table
