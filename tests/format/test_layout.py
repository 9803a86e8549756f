"""Drawings: panels do not overlap, readers stand below givers, lines do not run down through panels."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bitfactor.format import Graph, Node, Value
from bitfactor.format.drawing import WIDTH, layout


@st.composite
def graphs(draw):
    """Operations that read none, one or several earlier values, in any pattern, behind one input or two."""
    first, *others = (Value(name, (2,), "float32") for name in ("x", "mask")[: draw(st.integers(1, 2))])
    names, nodes = [value.name for value in (first, *others)], []
    for i in range(draw(st.integers(1, 25))):
        inputs = draw(st.lists(st.sampled_from(names[-6:]), max_size=3))
        if not inputs:
            nodes.append(Node(f"n{i}", "constant", (), {}, {"value": np.zeros(2, np.float32)}))
        else:
            nodes.append(Node(f"n{i}", "relu" if len(inputs) == 1 else "concat", tuple(inputs)))
        names.append(f"n{i}")
    outputs = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
    return Graph(first, tuple(nodes), (*outputs, names[-1]), tuple(others))


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_every_operation_stands_once_and_below_what_it_reads(graph):
    boxes = layout(graph).boxes
    rows = [name for box in boxes for name in box.panel.rows]
    assert sorted(rows) == sorted(graph.values)
    heights = {name: box.first_row + i for box in boxes for i, name in enumerate(box.panel.rows)}
    for node in graph.nodes:
        assert all(heights[name] < heights[node.name] for name in node.inputs)


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_no_card_covers_another_and_all_fit(graph):
    found = layout(graph)
    for a, b in combinations(found.boxes, 2):
        assert a.right < b.x or b.right < a.x or a.bottom < b.y or b.bottom < a.y
    assert max(box.right for box in found.boxes) < found.width
    assert max(box.bottom for box in found.boxes) < found.height
    assert max(x for line in found.lines for x, _ in line.points) <= found.width


@given(graphs())
@settings(max_examples=100, deadline=None)
def test_lines_run_from_giver_to_reader_and_not_down_through_panels(graph):
    found = layout(graph)
    expected = sorted(name for box in found.boxes for name in box.panel.reads)
    assert sorted(line.value for line in found.lines) == expected
    for line in found.lines:
        for (x, top), (right, bottom) in pairwise(line.points):
            assert x == right or top == bottom
            crossed = [
                box
                for box in found.boxes
                if x == right
                and box.x < x < box.right
                and box.y < max(top, bottom)
                and min(top, bottom) < box.bottom
            ]
            assert crossed == []


def residual():
    nodes = [Node("first", "relu", ("x",))]
    for i, name in enumerate(("first", "sum0")):
        nodes += [
            Node(f"block{i}.{part}", "relu", (source,)) for part, source in ((0, name), (1, f"block{i}.0"))
        ]
        nodes.append(Node(f"sum{i}", "add", (f"block{i}.1", name)))
    return Graph(Value("x", (2,), "float32"), tuple(nodes), ("sum1",))


def test_a_residual_network_is_one_lane_with_shortcuts_at_its_side():
    found = layout(residual())
    assert [box.panel.rows for box in found.boxes] == [
        ("x",),
        ("first",),
        ("block0.0", "block0.1"),
        ("sum0",),
        ("block1.0", "block1.1"),
        ("sum1",),
        (),
    ]
    assert [box.panel.title for box in found.boxes][2:5] == ["block0", "", "block1"]
    assert {box.lane for box in found.boxes} == {0}
    shortcuts = [line for line in found.lines if len(line.points) == 4]
    assert [line.value for line in shortcuts] == ["first", "sum0"]
    assert len({line.points[1][0] for line in shortcuts}) == 1, "one track for both"


def test_branches_nest():
    """An hourglass: the outer skip stands further out than the inner one, and returns below it."""
    path = ["x", *(f"down{i}" for i in range(6))]
    nodes = [Node(name, "relu", (source,)) for source, name in pairwise(path)]
    nodes += [Node("outer", "relu", ("down0",)), Node("inner", "relu", ("down2",))]
    nodes += [Node("up0", "add", ("down5", "inner")), Node("up1", "add", ("up0", "outer"))]
    lanes = {
        row: box.lane
        for box in layout(Graph(Value("x", (2,), "float32"), tuple(nodes), ("up1",))).boxes
        for row in box.panel.rows
    }
    assert (lanes["up1"], lanes["inner"], lanes["outer"]) == (0, 1, 2)


def test_a_constant_stands_beside_the_input():
    """A class token that is joined to the patches."""
    nodes = (
        Node("token", "constant", (), {}, {"value": np.zeros(2, np.float32)}),
        Node("patches", "relu", ("x",)),
        Node("joined", "concat", ("token", "patches")),
    )
    boxes = {
        box.panel.rows: box for box in layout(Graph(Value("x", (2,), "float32"), nodes, ("joined",))).boxes
    }
    assert (boxes["x",].lane, boxes["token",].lane) == (0, 1)
    assert boxes["x",].y == boxes["token",].y


def test_width_is_that_of_the_lanes():
    assert layout(residual()).width < 2 * WIDTH
