"""Binary layers: sign of the input, sign of a latent weight, scale."""

from bitfactor.nn.activation import PReLU, ReLU, Shift
from bitfactor.nn.attention import MultiheadAttention, open_attention_
from bitfactor.nn.contract import check_estimator, check_scale
from bitfactor.nn.conv import BinaryConv, BinaryConv1d, BinaryConv2d, BinaryConv3d, BinaryLinear
from bitfactor.nn.conv_transpose import BinaryConvTranspose, BinaryConvTranspose1d, BinaryConvTranspose2d
from bitfactor.nn.layer import BinaryLayer, binary_layers, merge_
from bitfactor.nn.normalise import MaxPool2d
from bitfactor.nn.product import sign
from bitfactor.nn.scale import (
    AnalyticScale,
    LearnedMapScale,
    LearnedScale,
    NoScale,
    Scale,
    analytic_alpha,
    register_scale,
)
from bitfactor.nn.sign import (
    SignActivation,
    SignWeight,
    anneal_,
    register_estimator,
    straight_through,
)
from bitfactor.nn.transform import register_weight_transform

__all__ = [
    "AnalyticScale",
    "BinaryConv",
    "BinaryConv1d",
    "BinaryConv2d",
    "BinaryConv3d",
    "BinaryConvTranspose",
    "BinaryConvTranspose1d",
    "BinaryConvTranspose2d",
    "BinaryLayer",
    "BinaryLinear",
    "LearnedMapScale",
    "LearnedScale",
    "MaxPool2d",
    "MultiheadAttention",
    "NoScale",
    "PReLU",
    "ReLU",
    "Scale",
    "Shift",
    "SignActivation",
    "SignWeight",
    "analytic_alpha",
    "anneal_",
    "binary_layers",
    "check_estimator",
    "check_scale",
    "merge_",
    "open_attention_",
    "register_estimator",
    "register_scale",
    "register_weight_transform",
    "sign",
    "straight_through",
]
