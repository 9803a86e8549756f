"""Buffers that live at the same time never overlap."""

from hypothesis import given
from hypothesis import strategies as st

from bitfactor.runtime.program import ALIGNMENT, Lifetime, place

lifetimes = st.builds(
    lambda size, first, steps: Lifetime(size, first, first + steps),
    st.integers(1, 500),
    st.integers(-1, 10),
    st.integers(0, 5),
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), lifetimes, max_size=20))
def test_buffers_alive_together_lie_apart(buffers):
    offsets, total = place(buffers)
    for name, buffer in buffers.items():
        assert offsets[name] % ALIGNMENT == 0
        assert offsets[name] + buffer.size <= total
        for other, neighbour in buffers.items():
            if name != other and buffer.first <= neighbour.last and neighbour.first <= buffer.last:
                apart = offsets[name] >= offsets[other] + neighbour.size
                assert apart or offsets[other] >= offsets[name] + buffer.size


def test_a_chain_needs_two_buffers():
    _, total = place({str(i): Lifetime(640, i, i + 1) for i in range(50)})
    assert total == 2 * 640
