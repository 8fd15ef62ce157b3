"""Tables from paths of places and actions, by hand or drawn by hypothesis."""

from hypothesis import strategies as st

from credit.table import TERMINAL, StepTable

moves = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["go", "look"])), min_size=1, max_size=5)
groups = st.lists(st.lists(st.tuples(st.booleans(), moves), min_size=1, max_size=4), min_size=1, max_size=3)


def table_of(groups, ends=None, **columns):
    """Groups of (success, [(place, action), …]); `ends` maps trajectory to what it saw last (TERMINAL)."""
    rows, k = [], 0
    for group, trajectories in enumerate(groups):
        for success, path in trajectories:
            for t, (place, action) in enumerate(path):
                last = t == len(path) - 1
                following = (ends or {}).get(k, TERMINAL) if last else path[t + 1][0]
                rows.append(
                    (group, k, t, 10.0 * success * last, 10.0 * success, success, place, following, action)
                )
            k += 1
    names = ("group", "trajectory", "t", "reward", "outcome", "success", "anchor", "next_anchor", "action")
    return StepTable(**dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), **columns)


def path(text):
    return [tuple(word.split(":")) for word in text.split()]
