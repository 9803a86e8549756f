"""Networks in float; `bitfactor.binarize_` turns their convolutions binary."""

from bitfactor.models.hourglass import Hourglass, hourglass
from bitfactor.models.resnet import ResNet, resnet18, resnet34

__all__ = ["Hourglass", "ResNet", "hourglass", "resnet18", "resnet34"]
