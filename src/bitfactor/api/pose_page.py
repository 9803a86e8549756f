"""A page of instances whose keypoints a network found best and worst."""

from pathlib import Path

import numpy as np

from bitfactor.api.poses import Instances, PoseEvaluation
from bitfactor.api.scores import mean_name
from bitfactor.data.pose import PoseData
from bitfactor.report import Chapter, Document, facts
from bitfactor.report.formats import Prose, write_html
from bitfactor.report.poses import Person, instances

_SHOWN = 9  # instances in each part of the page


def write_page(path: Path, shown: Instances, outcome: PoseEvaluation) -> None:
    """Show whom the network does best, in the middle and worst with."""
    convention = outcome.score.convention
    name, values = f"{convention.name}@{convention.thresholds[0]}", outcome.score.means().items()
    groups = [(group, f"{100 * rates[0]:.2f} %") for group, rates in outcome.score.groups().items()]
    means = [(mean_name(outcome.score, mean), f"{100 * rates[0]:.2f} %") for mean, rates in values]
    say = Prose("run.j2")
    chapters = [
        Chapter(f"Keypoints found: {name}", tables=[facts([*groups, *means])]),
        *(
            Chapter(title, [say("sides")], figures=instances(title.lower().replace(" ", "-"), found))
            for title, found in examples(shown, outcome, _SHOWN).items()
        ),
    ]
    lead = say("poses", images=outcome.images)
    write_html(Document(f"bitfactor: poses of {outcome.path}", [lead], [], chapters), path)


def examples(shown: Instances, outcome: PoseEvaluation, number: int) -> dict[str, list[Person]]:
    """Return `number` instances whom the network does best, in the middle and worst with, by title."""
    errors = outcome.errors()
    order = np.argsort(errors)[: int(np.isfinite(errors).sum())]
    middle = max((len(order) - number) // 2, 0)
    parts = {
        "Best": order[:number],
        "In the middle": order[middle : middle + number],
        "Worst": order[-number:][::-1],
    }
    return {
        title: [_person(shown.data, outcome, int(i), errors[i]) for i in chosen]
        for title, chosen in parts.items()
    }


def _person(data: PoseData, outcome: PoseEvaluation, index: int, error: float) -> Person:
    image, matrix = data.test_image(index)
    labelled = outcome.labelled[index]
    distance = np.linalg.norm(outcome.keypoints[index] - outcome.truth[index], axis=1)
    near = distance <= outcome.score.convention.thresholds[0] * outcome.norm[index]
    return Person(
        image,
        matrix,
        data.size,
        data.skeleton,
        outcome.keypoints[index],
        outcome.confidence[index],
        np.where(labelled[:, None], outcome.truth[index], np.nan),
        f"{(near & labelled).sum()} of {labelled.sum()} found, mean error {error:.2f}",
    )
