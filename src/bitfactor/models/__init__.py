"""Networks in full precision; `bitfactor.binarize_` turns their convolutions binary."""

from bitfactor.models.bnext import BNext, bnext_tiny
from bitfactor.models.compact import CompactNet
from bitfactor.models.hourglass import Hourglass, hourglass
from bitfactor.models.irnet import (
    HardtanhResNet,
    VGGSmall,
    irnet_resnet20,
    recu_resnet18,
    recu_resnet20,
    vgg_small,
)
from bitfactor.models.pretrained import Loaded, load_checkpoint, load_weights
from bitfactor.models.quicknet import QuickNet, quicknet, quicknet_large, quicknet_small
from bitfactor.models.reactnet import BiRealNet, ReActNetA, bireal18, bireal34, reactnet18, reactnet_a
from bitfactor.models.resnet import ResNet, resnet18, resnet34

__all__ = [
    "BNext",
    "BiRealNet",
    "CompactNet",
    "HardtanhResNet",
    "Hourglass",
    "Loaded",
    "QuickNet",
    "ReActNetA",
    "ResNet",
    "VGGSmall",
    "bireal18",
    "bireal34",
    "bnext_tiny",
    "hourglass",
    "irnet_resnet20",
    "load_checkpoint",
    "load_weights",
    "quicknet",
    "quicknet_large",
    "quicknet_small",
    "reactnet18",
    "reactnet_a",
    "recu_resnet18",
    "recu_resnet20",
    "resnet18",
    "resnet34",
    "vgg_small",
]
