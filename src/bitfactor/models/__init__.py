"""Networks in full precision; `bitfactor.binarize_` turns their convolutions binary."""

from bitfactor.models.hourglass import Hourglass, hourglass
from bitfactor.models.pretrained import Loaded, load_weights
from bitfactor.models.resnet import ResNet, resnet18, resnet34

__all__ = ["Hourglass", "Loaded", "ResNet", "hourglass", "load_weights", "resnet18", "resnet34"]
