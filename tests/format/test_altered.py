"""A model file that somebody altered, with a checksum that is right again, ends in InputError or runs."""

import random

import pytest
from tests.fuzz.model_files import altered, expect_one_error_or_an_answer

from bitfactor.common.errors import InputError
from bitfactor.format.graph import MOST_ELEMENTS, Value
from bitfactor.runtime import zoo


@pytest.mark.parametrize("seed", range(60))
def test_one_error_or_an_answer(seed) -> None:
    expect_one_error_or_an_answer(altered(zoo.file_of("digits").read_bytes(), random.Random(seed)))


def test_a_value_larger_than_places_in_memory_is_refused() -> None:
    with pytest.raises(InputError, match="elements"):
        Value("x", (MOST_ELEMENTS, 2), "float32")
