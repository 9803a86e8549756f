"""The graph, its operations and its file. Needs numpy and safetensors; knows no torch and no kernel."""

from bitfactor.common.image_spec import InputSpec, Skeleton
from bitfactor.format.bits import pack_signs, sign, unpack_signs
from bitfactor.format.file import load, save
from bitfactor.format.graph import Graph, Value
from bitfactor.format.model import ModelFile
from bitfactor.format.operations import Node
from bitfactor.format.signature import Signature

__all__ = [
    "Graph",
    "InputSpec",
    "ModelFile",
    "Node",
    "Signature",
    "Skeleton",
    "Value",
    "load",
    "pack_signs",
    "save",
    "sign",
    "unpack_signs",
]
