"""Data sets, each in its file."""

from bitfactor.data.cifar import Cifar10, Cifar100
from bitfactor.data.coco import CocoKeypoints
from bitfactor.data.dataset import Batch, DataSet, Target
from bitfactor.data.digits import Digits
from bitfactor.data.folder import ImageFolder
from bitfactor.data.lsp import Lsp
from bitfactor.data.mpii import Mpii
from bitfactor.data.shards import Shards

__all__ = [
    "Batch",
    "Cifar10",
    "Cifar100",
    "CocoKeypoints",
    "DataSet",
    "Digits",
    "ImageFolder",
    "Lsp",
    "Mpii",
    "Shards",
    "Target",
]
