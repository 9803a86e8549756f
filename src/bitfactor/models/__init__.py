"""Networks in float; `bitfactor.binarize_` turns their convolutions binary."""

from bitfactor.models.resnet import ResNet, resnet18, resnet34

__all__ = ["ResNet", "resnet18", "resnet34"]
