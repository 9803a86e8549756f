"""Images that cannot be read."""

import warnings

from bitfactor.errors import InputError


class CorruptImages:
    """Names and counts the images that could not be read; more than a fraction of them is an error.

    Parameters
    ----------
    where
        The data set, for messages.
    totals
        Part of the data set -> how many images it has.
    fraction
        The fraction of a part that may be corrupt.
    """

    def __init__(self, where: str, totals: dict[str, int], fraction: float) -> None:
        self.where, self.totals, self.fraction = where, totals, fraction
        self.found: dict[str, dict[str, str]] = {part: {} for part in totals}

    def __len__(self) -> int:
        return sum(len(names) for names in self.found.values())

    def add(self, part: str, name: str, reason: str) -> None:
        """Count an image, the first time with a warning.

        Raises
        ------
        InputError
            If now more of the part are corrupt than may be.
        """
        names = self.found[part]
        if name in names:
            return
        names[name] = reason
        if len(names) > self.fraction * self.totals[part]:
            raise InputError(
                f"{self.where} ({part})",
                expected=f"at most {int(self.fraction * self.totals[part])} corrupt images of"
                f" {self.totals[part]:,} ({self.fraction:.1%})",
                found=f"{len(names)}, the last of them {reason}",
                fix="run `bitfactor check-data` on it and repair or remove what it lists",
            )
        warnings.warn(f"{reason} [left out, corrupt image {len(names)} of {part}]", stacklevel=2)
