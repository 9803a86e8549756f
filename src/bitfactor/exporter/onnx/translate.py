"""A model file becomes an ONNX model, operation by operation."""

import json
from dataclasses import asdict

import onnx
from onnx import TensorProto, helper

from bitfactor.exporter.onnx.builder import OPSET, QONNX_DOMAIN, Form, OnnxBuilder
from bitfactor.format import ModelFile
from bitfactor.format.operations import OPERATIONS

_OPSETS: dict[Form, dict[str, int]] = {
    "standard": {"": OPSET},
    "qonnx": {"": OPSET, QONNX_DOMAIN: 1},
}
_IR_VERSION = 8  # that of opset 18: newer runtimes read it as well


def to_onnx(model: ModelFile, form: Form = "standard") -> onnx.ModelProto:
    """Translate `model` to ONNX, with a batch dimension of any size, and image sizes that differ left open.

    Parameters
    ----------
    form
        - `standard`: operators of ONNX alone (opset 18). A sign is a comparison; a binary weight is stored as
          one bit and becomes the -1 and +1 of an ordinary convolution when a runtime folds constants.
        - `qonnx`: signs of activations and weights are `BipolarQuant` nodes, as compilers for FPGAs read
          them, and binary weights stand in float32. The file defines that operator, so that any runtime
          which knows functions of ONNX runs it too.

    Returns
    -------
    A model whose metadata holds what the model file knows: labels, input specification, skeleton and
    provenance, each as JSON. All its values are float32: sums and signs as well.

    Example
    -------
    >>> onnx.save(to_onnx(bitfactor.format.load("net.safetensors")), "net.onnx")
    """
    graph = model.graph
    builder = OnnxBuilder(graph, form)
    for node in graph.nodes:
        OPERATIONS[node.op].onnx(builder, node, *node.inputs)
    outputs, dimensions = _outputs(builder), _dimensions(model)
    inner = [node.name for node in graph.nodes if node.name not in graph.outputs]
    proto = helper.make_model(
        helper.make_graph(
            builder.nodes,
            "bitfactor",
            [_value(graph.input.name, dimensions[graph.input.name])],
            [_value(name, dimensions[value]) for name, value in outputs.items()],
            list(builder.constants.values()),
            value_info=[_value(name, dimensions[name]) for name in inner],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _OPSETS[form].items()],
        functions=[_bipolar_quant()] if form == "qonnx" else [],
        ir_version=_IR_VERSION,
        producer_name="bitfactor",
    )
    helper.set_model_props(proto, _metadata(model))
    return proto


def _outputs(builder: OnnxBuilder) -> dict[str, str]:
    """Return name -> value of the graph; an output that is the input, or named twice, is copied."""
    outputs: dict[str, str] = {}
    for name in builder.graph.outputs:
        copied = name in outputs or name == builder.graph.input.name
        outputs[builder.emit("Identity", [name]) if copied else name] = name
    return outputs


def _dimensions(model: ModelFile) -> dict[str, list[str | int]]:
    """Return the dimensions of every value; those that depend on the input's shape are symbols."""
    graphs = [model.graph, *(model.graph_for(shape) for shape in model.other_shapes)]
    sizes = {name: zip(*(g.values[name].shape for g in graphs), strict=True) for name in model.graph.values}
    return {name: ["N", *map(_dimension, sizes[name])] for name in sizes}


def _dimension(sizes: tuple[int, ...]) -> str | int:
    """Return the one size, or a symbol that names them all."""
    return sizes[0] if len(set(sizes)) == 1 else " or ".join(map(str, sizes))


def _value(name: str, dimensions: list[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dimensions)


def _bipolar_quant() -> onnx.FunctionProto:
    """BipolarQuant(x, scale), as QONNX defines it: scale where x >= 0, else -scale."""
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Neg", ["scale"], ["negative"]),
        helper.make_node("GreaterOrEqual", ["x", "zero"], ["rises"]),
        helper.make_node("Where", ["rises", "scale", "negative"], ["y"]),
    ]
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_function(QONNX_DOMAIN, "BipolarQuant", ["x", "scale"], ["y"], nodes, opset)


def _metadata(model: ModelFile) -> dict[str, str]:
    known = {
        "labels": model.labels,
        "input_spec": model.input_spec and asdict(model.input_spec),
        "skeleton": model.skeleton and asdict(model.skeleton),
        "provenance": dict(model.provenance),
    }
    return {name: json.dumps(value, sort_keys=True) for name, value in known.items() if value}
