"""What goes into a network and what its outputs mean: stored with a run, so that no data are needed later."""

from dataclasses import asdict, dataclass
from typing import Any

from bitfactor.data import DataSet
from bitfactor.format import InputSpec, Skeleton


@dataclass(frozen=True)
class Interface:
    """How images become inputs, and the names of classes or joints."""

    input_spec: InputSpec
    labels: tuple[str, ...] = ()
    skeleton: Skeleton | None = None

    @classmethod
    def of(cls, data: DataSet) -> "Interface":
        """Return what a data set says; one of poses has an attribute `skeleton`."""
        return cls(data.input_spec, data.labels, getattr(data, "skeleton", None))

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Interface":
        """Return what `to_dict` gave, also after it went through JSON."""
        skeleton = values["skeleton"]
        return cls(
            InputSpec(**_frozen(values["input_spec"])),
            tuple(values["labels"]),
            Skeleton(**_frozen(skeleton)) if skeleton else None,
        )


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_tuple(value) for name, value in values.items()}


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value
