"""`bitfactor evaluate RUN` and `bitfactor evaluate FILE`."""

from collections.abc import Callable, Sequence

from bitfactor.cli.arguments import parse
from bitfactor.cli.evaluate_classification import evaluate_classification
from bitfactor.cli.evaluate_pose import evaluate_pose
from bitfactor.cli.evaluation import Arguments
from bitfactor.cli.subject import Subject, subject_at
from bitfactor.training import Classification, PoseEstimation

_EVALUATIONS: dict[type, Callable[[Subject, Arguments], None]] = {
    Classification: evaluate_classification,
    PoseEstimation: evaluate_pose,
}


def main(arguments: Sequence[str]) -> None:
    """Measure on the held-out data, as befits the recipe's task, and print the outcome."""
    options = parse(Arguments, "evaluate", arguments)
    subject = subject_at(options.path, options.data, limit=options.limit, best=options.best)
    _EVALUATIONS[type(subject.recipe.task)](subject, options)
