"""Tables from walks written as words, by hand or drawn by hypothesis."""

from hypothesis import strategies as st

from credit.table import TERMINAL, StepTable


def table_of(*walks, group=None, valid=None, reward=10.0, anchors=None):
    """One trajectory per walk: 'place place end', the end being '!' for the goal or where it failed."""
    rows = []
    for k, walk in enumerate(walks):
        *places, end = walk.split()
        for t, (here, following) in enumerate(zip(places, [*places[1:], end], strict=True)):
            rows.append((group[k] if group else 0, k, t, here, TERMINAL if following == "!" else following))
    won = [walk.endswith("!") for walk in walks]
    return StepTable(
        group=[r[0] for r in rows],
        trajectory=[r[1] for r in rows],
        t=[r[2] for r in rows],
        anchor=anchors(len(rows)) if anchors else [r[3] for r in rows],
        next_anchor=[r[4] for r in rows],
        reward=[reward * (r[4] is TERMINAL) for r in rows],
        outcome=[reward * won[r[1]] for r in rows],
        success=[won[r[1]] for r in rows],
        valid=valid,
    )


def grouped(groups, **options):
    """A table of several groups of walks."""
    number = [g for g, members in enumerate(groups) for _ in members]
    return table_of(*[walk for members in groups for walk in members], group=number, **options)


walks = st.builds(
    lambda places, end: " ".join([*places, end]),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    st.sampled_from("abc!!"),
)
groups_of_walks = st.lists(st.lists(walks, min_size=1, max_size=4), max_size=3)


def unknown_end():
    """A success and a failure of one step from the same place; where the failure led is not known."""
    return StepTable(
        group=[0, 0],
        trajectory=[0, 1],
        t=[0, 0],
        reward=[10, 0],
        outcome=[10, 0],
        success=[1, 0],
        anchor=["s", "s"],
    )
