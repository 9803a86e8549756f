"""What training and inference agree on: bits, graphs, files. Needs numpy and safetensors alone."""

from bitfactor.format.bits import pack_signs, sign, unpack_signs
from bitfactor.format.file import InputSpec, ModelFile, load, save
from bitfactor.format.graph import Graph, Value
from bitfactor.format.operations import Node
from bitfactor.format.signature import Signature
from bitfactor.pose.skeleton import Skeleton

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
