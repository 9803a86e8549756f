"""Tompson's split of MPII: which people are the validation set, recognised by their joints."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from bitfactor.pose.people import People
from bitfactor.pose.truth import Truth


def find(people: People, truth: Truth) -> NDArray[np.int64]:
    """Return for each person of `truth`, (M,), the number of the same one among `people`, or -1.

    The file of true joints names no images, and the official annotations do not say who is in the split.
    The same person is the one with most of the joints at the same whole pixels, and at least half of them.
    """
    known = _pixels(people.joints)
    holders: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for person, joint in np.argwhere(people.labelled):
        holders[(joint, *known[person, joint])].append(person)
    wanted = _pixels(truth.joints - 1)
    found = np.full(len(wanted), -1)
    for row, labelled in enumerate(truth.labelled):
        votes: dict[int, int] = defaultdict(int)
        for joint in np.flatnonzero(labelled):
            for person in holders.get((joint, *wanted[row, joint]), ()):
                votes[person] += 1
        best = max(votes, key=lambda person: votes[person], default=-1)
        if best >= 0 and 2 * votes[best] >= labelled.sum():
            found[row] = best
    return found


def corrected(people: People, truth: Truth) -> People:
    """Return those of `truth` whom `people` has, in its order, with its joints, labels and head sizes."""
    found = find(people, truth)
    present = np.flatnonzero(found >= 0)
    chosen = people.take(found[present])
    return People(
        chosen.images,
        chosen.centre,
        chosen.side,
        truth.joints[present] - 1,
        truth.labelled[present],
        truth.norm[present],
    )


def _pixels(joints: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.floor(joints + 0.25).astype(np.int64)
