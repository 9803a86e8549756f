"""Binary layers: sign of the input, sign of a latent weight, scale."""

from bitfactor.nn.attention import MultiheadAttention, open_attention_
from bitfactor.nn.conv import BinaryConv, BinaryConv1d, BinaryConv2d, BinaryConv3d
from bitfactor.nn.conv_transpose import BinaryConvTranspose, BinaryConvTranspose1d, BinaryConvTranspose2d
from bitfactor.nn.layer import BinaryLayer, merge_
from bitfactor.nn.linear import BinaryLinear
from bitfactor.nn.pooling import MaxPool2d
from bitfactor.nn.scale import AnalyticScale, LearnedMapScale, LearnedScale, NoScale, Scale, analytic_alpha
from bitfactor.nn.sign import PReLU, ReLU, Shift, SignActivation, anneal_, sign, straight_through

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
    "analytic_alpha",
    "anneal_",
    "merge_",
    "open_attention_",
    "sign",
    "straight_through",
]
