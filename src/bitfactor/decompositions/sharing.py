"""Parameters that several layers have together."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from bitfactor.decompositions.latent import Unlaid


class Shared(Unlaid):
    """A submodule of several latents at once.

    As of any module that is used twice, its parameters stand once in `parameters()`; in a `state_dict()`
    they stand once too, under the first layer that has them. They belong to all of these layers alike: who
    freezes, moves or casts one layer does so with every layer that shares its parameters, and the state of a
    part of a model holds what its layers share with others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_post_hook(_forgive)  # type: ignore[no-untyped-call]

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        own = next(self.parameters())
        if destination is not None and any(_is(value, own) for value in destination.values()):
            return destination
        return super().state_dict(*args, destination=destination, prefix=prefix, keep_vars=keep_vars)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: Any,
        *rest: Any,
    ) -> None:
        if any(name.startswith(prefix) for name in state_dict):
            self.__dict__["_loaded"] = missing  # the list tells this call of load_state_dict from others
        elsewhere = self.__dict__.get("_loaded") is missing
        self.__dict__["_absent"] = prefix if elsewhere else None
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)


def _forgive(shared: nn.Module, keys: Any) -> None:
    """Let the names be missing under which another layer has what was loaded."""
    if absent := shared.__dict__.get("_absent"):
        keys.missing_keys[:] = [name for name in keys.missing_keys if not name.startswith(absent)]


def _is(value: object, parameter: Tensor) -> bool:
    """Return whether a value of a state is this parameter."""
    if value is parameter or not isinstance(value, Tensor) or parameter.is_meta:
        return value is parameter
    return value.shape == parameter.shape and value.data_ptr() == parameter.data_ptr()
