"""Networks of others, made binary, trained a step, exported and run: what comes through, and how fast it is.

    python benchmarks/gallery.py [NAME ...] [--small] [--latent none svd tucker holistic] [--repeats 20]
                                 [--table docs/results/gallery.md]

The networks are architectures of `transformers`, built from their configurations with random weights, and own
ones; none of their code is changed. Each runs in a process of its own, which makes it binary by
`bitfactor.binarize_` with nothing but the latent, takes one step of training, exports it, and compares every
instruction set with the reference, bit for bit, and with torch. Then torch in float32 and the exported file
take turns on one core, batch 1; the ratio is that of the medians. Widths are those of published small models,
depths are cut, so that exporting all takes minutes.
"""

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import bitfactor
from bitfactor.common.machine import cpu_name
from bitfactor.format.graph import total
from bitfactor.nn.model import Call
from bitfactor.runtime import Session, instruction_sets

LATENTS = ("none", "svd", "tucker", "holistic")


@dataclass(frozen=True)
class Network:
    """`build(**small)` and `build(**small, **full)` are the network in two sizes; `inputs` its example."""

    build: Callable[..., nn.Module]
    inputs: Callable[[bool], Any]
    small: dict[str, Any] = field(default_factory=dict)
    full: dict[str, Any] = field(default_factory=dict)


def _of_transformers(model: str, configuration: str, **fixed: Any) -> Callable[..., nn.Module]:
    def build(**options: Any) -> nn.Module:
        import transformers

        transformers.logging.set_verbosity_error()
        config = getattr(transformers, configuration)(**{**fixed, **options})
        network: nn.Module = getattr(transformers, model)(config)
        return network

    return build


def _image(small: int = 64, full: int = 224, channels: int = 3) -> Callable[[bool], Any]:
    return lambda is_small: (torch.randn(2, channels, *[small if is_small else full] * 2),)


def _tokens(small: int = 12, full: int = 128) -> Callable[[bool], Any]:
    return lambda is_small: (torch.randint(1, 100, (2, small if is_small else full)),)


def _classifier(name: str, **options: Any) -> Network:
    return Network(
        _of_transformers(f"{name}ForImageClassification", f"{name}Config"),
        _image(),
        options.pop("small", {}),
        options.pop("full", {}),
    )


_STAGES = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}
_VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "image_size": 64, "patch_size": 16,
}  # fmt: skip
_VIT_TINY = {
    "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768,
    "image_size": 224,
}  # fmt: skip
_BERT = {
    "vocab_size": 1000, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 64, "max_position_embeddings": 128,
}  # fmt: skip
_BERT_SMALL = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024,
}  # fmt: skip
_SPEECH = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
    "conv_dim": [16] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
_SPEECH_SMALL = {
    "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "conv_dim": [128] * 7,
    "num_conv_pos_embeddings": 64, "num_conv_pos_embedding_groups": 16,
}  # fmt: skip


def _with_backbone(model: str, configuration: str, backbone: str) -> Callable[..., nn.Module]:
    def build(backbone_config: dict[str, Any], **options: Any) -> nn.Module:
        import transformers

        inner = getattr(transformers, backbone)(**backbone_config)
        return _of_transformers(model, configuration)(backbone_config=inner, **options)

    return build


def _encoder(room: str, model: str, configuration: str) -> Callable[..., nn.Module]:
    """A part of a model that its package does not name at the top."""

    def build(**options: Any) -> nn.Module:
        import importlib

        import transformers

        module = importlib.import_module(f"transformers.models.{room}.modeling_{room}")
        network: nn.Module = getattr(module, model)(getattr(transformers, configuration)(**options))
        return network

    return build


class Unet(nn.Module):
    """An encoder and a decoder of two levels, joined by what they have in common in size."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Sequential:
            conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))

        self.first, self.down = block(3, width), block(width, 2 * width)
        self.middle = block(2 * width, 4 * width)
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.joined, self.last = block(4 * width, 2 * width), block(3 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        down = self.down(nn.functional.max_pool2d(first, 2))
        middle = self.middle(nn.functional.max_pool2d(down, 2))
        joined = self.joined(torch.cat([self.up(middle), down], 1))
        wide = nn.functional.interpolate(joined, scale_factor=2, mode="bilinear")
        y: Tensor = self.head(self.last(torch.cat([wide, first], 1)))
        return y


def keyword_spotting(width: int = 32) -> nn.Module:
    """Depthwise separable convolutions over a spectrogram, as in DS-CNN."""
    layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), 2, (5, 1)), nn.BatchNorm2d(width), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 12))


def video(width: int = 16) -> nn.Module:
    """Convolutions over time, height and width."""
    return nn.Sequential(
        nn.Conv3d(3, width, 3, (1, 2, 2), 1), nn.BatchNorm3d(width), nn.ReLU(),
        nn.Conv3d(width, 2 * width, 3, padding=1), nn.BatchNorm3d(2 * width), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(2 * width, 4 * width, 3, padding=1), nn.BatchNorm3d(4 * width), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4 * width, 10),
    )  # fmt: skip


class TwoTowers(nn.Module):
    """An image and a vector, embedded in one space: the cosine of both."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.SiLU(inplace=True),
            nn.Conv2d(width, 4 * width, 3, 2, 1), nn.BatchNorm2d(4 * width), nn.SiLU(inplace=True),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, width),
        )  # fmt: skip
        self.vector = nn.Sequential(
            nn.Linear(20, 4 * width), nn.LayerNorm(4 * width), nn.GELU(), nn.Linear(4 * width, 4 * width),
            nn.GELU(), nn.Linear(4 * width, width),
        )  # fmt: skip

    def forward(self, image: Tensor, vector: Tensor) -> dict[str, Tensor]:
        first, second = (nn.functional.normalize(y, dim=1) for y in (self.image(image), self.vector(vector)))
        return {"cosine": (first * second).sum(1, keepdim=True), "image": first, "vector": second}


def autoencoder(width: int = 16) -> nn.Module:
    """Strided convolutions down, transposed ones up."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ELU(inplace=True),
        nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


_CONVNEXT = {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}
_CONVNEXT_ATTO = {"hidden_sizes": [40, 80, 160, 320], "depths": [1, 1, 2, 1]}
_SWIN = {
    "image_size": 64,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
}
_SWIN_TINY = {
    "image_size": 112,
    "embed_dim": 48,
    "depths": [2, 2, 2],
    "num_heads": [3, 6, 12],
    "window_size": 7,
}
_PYRAMID = {**_STAGES, "num_attention_heads": [1, 2, 3, 4]}
_PYRAMID_TINY = {"hidden_sizes": [32, 64, 160, 256], "num_attention_heads": [1, 2, 5, 8]}
_RESNET = {
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 48, 64],
    "depths": [1, 1, 1, 1],
    "layer_type": "basic",
}
_RESNET_18 = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
_VIDEO = {**_VIT, "image_size": 32}
_VIDEO_TINY = {**_VIT_TINY, "image_size": 64, "num_hidden_layers": 2}

GALLERY: dict[str, Network] = {
    "resnet": _classifier("ResNet", small=_RESNET, full=_RESNET_18),
    "mobilenet-v1": _classifier(
        "MobileNetV1", small={"depth_multiplier": 0.25}, full={"depth_multiplier": 0.5}
    ),
    "mobilenet-v2": _classifier(
        "MobileNetV2", small={"depth_multiplier": 0.35}, full={"depth_multiplier": 0.5}
    ),
    "efficientnet": _classifier(
        "EfficientNet",
        small={"width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320},
        full={"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
    ),
    "regnet": _classifier(
        "RegNet",
        small={**_RESNET, "layer_type": "y", "groups_width": 8},
        full={"embedding_size": 32, "hidden_sizes": [48, 104, 208, 440], "depths": [1, 2, 3, 2]},
    ),
    "convnext": _classifier("ConvNext", small=_CONVNEXT, full=_CONVNEXT_ATTO),
    "convnext-v2": _classifier("ConvNextV2", small=_CONVNEXT, full=_CONVNEXT_ATTO),
    "poolformer": _classifier("PoolFormer", small=_STAGES, full={"hidden_sizes": [32, 64, 160, 256]}),
    "focalnet": _classifier(
        "FocalNet",
        small={
            "image_size": 64,
            "embed_dim": 16,
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        full={"image_size": 224, "embed_dim": 48},
    ),
    "levit": _classifier(
        "Levit",
        small={
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "num_attention_heads": [2, 3, 4],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        full={
            "image_size": 224,
            "hidden_sizes": [128, 256, 384],
            "num_attention_heads": [4, 8, 12],
            "key_dim": [16] * 3,
        },
    ),
    "mobilevit": _classifier(
        "MobileViT",
        small={
            "image_size": 64,
            "hidden_sizes": [32, 48, 64],
            "neck_hidden_sizes": [8, 16, 16, 24, 32, 48, 64],
        },
        full={
            "image_size": 224,
            "hidden_sizes": [64, 80, 96],
            "neck_hidden_sizes": [16, 16, 24, 48, 64, 80, 320],
        },
    ),
    "mobilevit-v2": _classifier(
        "MobileViTV2", small={"image_size": 64, "width_multiplier": 0.5}, full={"image_size": 224}
    ),
    "vit": _classifier("ViT", small=_VIT, full=_VIT_TINY),
    "deit": _classifier("DeiT", small=_VIT, full=_VIT_TINY),
    "beit": _classifier("Beit", small={**_VIT, "use_relative_position_bias": True}, full=_VIT_TINY),
    "dinov2": _classifier(
        "Dinov2",
        small={
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 64,
            "patch_size": 16,
        },
        full={"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "image_size": 224},
    ),
    "data2vec-vision": _classifier("Data2VecVision", small=_VIT, full=_VIT_TINY),
    "swin": Network(
        _of_transformers("SwinForImageClassification", "SwinConfig"), _image(64, 112), _SWIN, _SWIN_TINY
    ),
    "swin-v2": Network(
        _of_transformers("Swinv2ForImageClassification", "Swinv2Config"), _image(64, 112), _SWIN, _SWIN_TINY
    ),
    "swin2sr": Network(
        _of_transformers("Swin2SRForImageSuperResolution", "Swin2SRConfig"),
        _image(32, 64),
        {"image_size": 32, "embed_dim": 24, "depths": [2], "num_heads": [2], "window_size": 4},
        {"image_size": 64, "embed_dim": 60, "num_heads": [6], "window_size": 8},
    ),
    "pvt": _classifier(
        "Pvt", small={"image_size": 64, **_PYRAMID}, full={"image_size": 224, **_PYRAMID_TINY}
    ),
    "pvt-v2": _classifier(
        "PvtV2", small={"image_size": 64, **_PYRAMID}, full={"image_size": 224, **_PYRAMID_TINY}
    ),
    "segformer": Network(
        _of_transformers("SegformerForSemanticSegmentation", "SegformerConfig"),
        _image(64, 128),
        {
            **_PYRAMID,
            "num_attention_heads": [1, 1, 2, 2],
            "hidden_sizes": [16, 16, 32, 32],
            "decoder_hidden_size": 32,
        },
        {**_PYRAMID_TINY, "decoder_hidden_size": 256},
    ),
    "glpn": Network(
        _of_transformers("GLPNForDepthEstimation", "GLPNConfig"),
        _image(64, 128),
        {
            **_PYRAMID,
            "num_attention_heads": [1, 1, 2, 2],
            "hidden_sizes": [16, 16, 32, 32],
            "decoder_hidden_size": 16,
        },
        {**_PYRAMID_TINY, "decoder_hidden_size": 64},
    ),
    "upernet": Network(
        _with_backbone("UperNetForSemanticSegmentation", "UperNetConfig", "ConvNextConfig"),
        _image(64, 128),
        {
            "backbone_config": {**_CONVNEXT, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
            "hidden_size": 32,
            "auxiliary_in_channels": 48,
            "auxiliary_channels": 16,
            "num_labels": 5,
        },
        {
            "backbone_config": {**_CONVNEXT_ATTO, "out_features": ["stage1", "stage2", "stage3", "stage4"]},
            "hidden_size": 128,
            "auxiliary_in_channels": 160,
            "auxiliary_channels": 64,
        },
    ),
    "dpt": Network(
        _of_transformers("DPTForDepthEstimation", "DPTConfig"),
        _image(64, 128),
        {
            **_VIT,
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "fusion_hidden_size": 16,
            "neck_hidden_sizes": [16, 16, 32, 32],
        },
        {
            **_VIT_TINY,
            "image_size": 128,
            "fusion_hidden_size": 64,
            "neck_hidden_sizes": [48, 96, 192, 192],
        },
    ),
    "detr": Network(
        _with_backbone("DetrForObjectDetection", "DetrConfig", "ResNetConfig"),
        _image(64, 128),
        {
            "backbone_config": {**_RESNET, "out_features": ["stage4"]},
            "use_timm_backbone": False,
            "use_pretrained_backbone": False,
            "backbone": None,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "num_queries": 5,
            "num_labels": 4,
        },
        {
            "backbone_config": {**_RESNET, **_RESNET_18, "out_features": ["stage4"]},
            "d_model": 128,
            "encoder_ffn_dim": 512,
            "decoder_ffn_dim": 512,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "num_queries": 50,
        },
    ),
    "yolos": Network(
        _of_transformers("YolosForObjectDetection", "YolosConfig"),
        _image(64, 128),
        {**_VIT, "image_size": [64, 64], "num_detection_tokens": 5},
        {**_VIT_TINY, "image_size": [128, 128], "num_detection_tokens": 50},
    ),
    "vitpose": Network(
        _with_backbone("VitPoseForPoseEstimation", "VitPoseConfig", "VitPoseBackboneConfig"),
        lambda is_small: (torch.randn(2, 3, *((64, 48) if is_small else (128, 96))),),
        {
            "backbone_config": {
                "image_size": [64, 48],
                "patch_size": [16, 16],
                "hidden_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "out_indices": [2],
            },
            "num_labels": 17,
            "use_simple_decoder": False,
        },
        {
            "backbone_config": {
                "image_size": [128, 96],
                "patch_size": [16, 16],
                "hidden_size": 192,
                "num_hidden_layers": 4,
                "num_attention_heads": 3,
                "out_indices": [4],
            },
        },
    ),
    "clip-vision": Network(
        _of_transformers("CLIPVisionModelWithProjection", "CLIPVisionConfig", projection_dim=16),
        _image(),
        _VIT,
        _VIT_TINY,
    ),
    "siglip-vision": Network(
        _of_transformers("SiglipVisionModel", "SiglipVisionConfig"), _image(), _VIT, _VIT_TINY
    ),
    "videomae": Network(
        _of_transformers("VideoMAEForVideoClassification", "VideoMAEConfig", num_frames=4),
        lambda is_small: (torch.randn(2, 4, 3, *[32 if is_small else 64] * 2),),
        _VIDEO,
        _VIDEO_TINY,
    ),
    "whisper-encoder": Network(
        _encoder("whisper", "WhisperEncoder", "WhisperConfig"),
        lambda is_small: (torch.randn(2, *((20, 60) if is_small else (80, 600))),),
        {
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "num_mel_bins": 20,
            "max_source_positions": 30,
        },
        {
            "d_model": 256,
            "encoder_attention_heads": 4,
            "encoder_ffn_dim": 1024,
            "num_mel_bins": 80,
            "max_source_positions": 300,
        },
    ),
    "wav2vec2": Network(
        _of_transformers("Wav2Vec2Model", "Wav2Vec2Config"),
        lambda is_small: (torch.randn(2, 4000 if is_small else 8000),),
        _SPEECH,
        _SPEECH_SMALL,
    ),
    "hubert": Network(
        _of_transformers("HubertModel", "HubertConfig"),
        lambda is_small: (torch.randn(2, 4000 if is_small else 8000),),
        _SPEECH,
        _SPEECH_SMALL,
    ),
    "audio-spectrogram-transformer": Network(
        _of_transformers("ASTForAudioClassification", "ASTConfig"),
        lambda is_small: (torch.randn(2, *((64, 32) if is_small else (256, 64))),),
        {**{k: v for k, v in _VIT.items() if k != "image_size"}, "max_length": 64, "num_mel_bins": 32},
        {**{k: v for k, v in _VIT_TINY.items() if k != "image_size"}, "max_length": 256, "num_mel_bins": 64},
    ),
    "bert": Network(
        _of_transformers("BertForSequenceClassification", "BertConfig"), _tokens(), _BERT, _BERT_SMALL
    ),
    "distilbert": Network(
        _of_transformers("DistilBertForSequenceClassification", "DistilBertConfig"),
        _tokens(),
        {
            "vocab_size": 1000,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 64,
            "max_position_embeddings": 128,
        },
        {"dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 1024},
    ),
    "albert": Network(
        _of_transformers("AlbertForSequenceClassification", "AlbertConfig", embedding_size=16),
        _tokens(),
        _BERT,
        _BERT_SMALL,
    ),
    "electra": Network(
        _of_transformers("ElectraForSequenceClassification", "ElectraConfig", embedding_size=16),
        _tokens(),
        _BERT,
        _BERT_SMALL,
    ),
    "squeezebert": Network(
        _of_transformers("SqueezeBertForSequenceClassification", "SqueezeBertConfig"),
        _tokens(),
        {**_BERT, "embedding_size": 32},
        {**_BERT_SMALL, "embedding_size": 256},
    ),
    "patchtst": Network(
        _of_transformers("PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=3),
        lambda is_small: (torch.randn(2, 32 if is_small else 256, 3),),
        {
            "context_length": 32,
            "patch_length": 8,
            "patch_stride": 8,
            "d_model": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 64,
            "prediction_length": 8,
        },
        {"context_length": 256, "d_model": 128, "ffn_dim": 512},
    ),
    "time-series-transformer": Network(
        _encoder("time_series_transformer", "TimeSeriesTransformerEncoder", "TimeSeriesTransformerConfig"),
        lambda is_small: {"inputs_embeds": torch.randn(2, 24 if is_small else 96, 5)},
        {
            "prediction_length": 4,
            "context_length": 24,
            "num_time_features": 1,
            "lags_sequence": [1, 2],
            "d_model": 32,
            "encoder_layers": 2,
            "encoder_ffn_dim": 64,
            "encoder_attention_heads": 2,
        },
        {"context_length": 96, "d_model": 128, "encoder_ffn_dim": 512, "encoder_attention_heads": 4},
    ),
    "u-net": Network(Unet, _image(32, 128), {"width": 8}, {"width": 32}),
    "keyword-spotting": Network(
        keyword_spotting, lambda is_small: (torch.randn(2, 1, 49, 10),), {"width": 16}, {"width": 128}
    ),
    "video-convolutions": Network(
        video,
        lambda is_small: (torch.randn(2, 3, *((4, 16, 16) if is_small else (8, 64, 64))),),
        {"width": 8},
        {"width": 32},
    ),
    "two-towers": Network(
        TwoTowers,
        lambda is_small: (torch.randn(2, 3, *[16 if is_small else 64] * 2), torch.randn(2, 20)),
        {"width": 8},
        {"width": 32},
    ),
    "autoencoder": Network(autoencoder, _image(16, 64), {"width": 8}, {"width": 32}),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a network; times are in milliseconds, `difference` over the largest output."""

    name: str
    latent: str
    error: str = ""
    binary_fraction: float = 0.0
    torch_ms: float = 0.0
    ms: float = 0.0
    difference: float = 0.0
    same_class: str = ""


def tried(name: str, latent: str, small: bool, repeats: int) -> Outcome:
    """Make a network binary, train it a step, export it, run it on every instruction set, and time it."""
    network = GALLERY[name]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    options = network.small if small else {**network.small, **network.full}
    model, example = network.build(**options), network.inputs(small)
    call = Call.of(example)
    bitfactor.binarize_(model, latent=latent, example=example)
    _train_a_step(model, call)
    model.eval()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "net.safetensors"
        report = bitfactor.export(model, path, example)
        arrays = [x.numpy() for x in call.tensors]
        expected = _leaves(Session(path, isa="reference")(*arrays))
        for isa in instruction_sets():
            for found, wanted in zip(_leaves(Session(path, isa=isa)(*arrays)), expected, strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=isa)
        torch_ms, ms = _times(network.build(**options).eval(), call, path, repeats) if repeats else (0.0, 0.0)
        graph = Session(path).model.graph
    return Outcome(
        name, latent, "", total(graph).binary_fraction, torch_ms, ms, report.max_difference,
        f"{report.same_class} of {report.checked_inputs}",
    )  # fmt: skip


def _train_a_step(model: nn.Module, call: Call) -> None:
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs = [y for y in tree_leaves(call(model)) if isinstance(y, Tensor) and y.requires_grad]
    sum(y.square().mean() for y in outputs).backward()
    optimizer.step()


def _leaves(outputs: Any) -> list[np.ndarray]:
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, np.ndarray)]


def _times(model: nn.Module, call: Call, path: Path, repeats: int) -> tuple[float, float]:
    """Return the median times of torch and of the file, which take turns, on one sample and one core."""
    one = call.mapped(lambda x: x[:1])
    session, arrays = Session(path, threads=1), [x.numpy() for x in one.tensors]
    times: dict[str, list[float]] = {"torch": [], "file": []}
    with torch.inference_mode():
        for run in range(repeats + 3):
            for engine, call_it in (("torch", lambda: one(model)), ("file", lambda: session(*arrays))):
                begin = time.perf_counter()
                call_it()
                if run >= 3:
                    times[engine].append(1e3 * (time.perf_counter() - begin))
    return median(times["torch"]), median(times["file"])


def in_a_process(name: str, latent: str, small: bool, repeats: int) -> Outcome:
    command = [sys.executable, __file__, name, "--latent", latent, "--repeats", str(repeats), "--one"]
    process = subprocess.run([*command, *(["--small"] if small else [])], capture_output=True, text=True)
    lines = process.stdout.strip().splitlines()
    if process.returncode or not lines:
        return Outcome(name, latent, (process.stderr.strip().splitlines() or ["no output"])[-1])
    return Outcome(**json.loads(lines[-1]))


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as a table in Markdown."""
    rows = ["| network | 1 bit, of the multiply-adds | torch, ms | file, ms | over torch | difference |"]
    rows.append("|---|---|---|---|---|---|")
    for o in outcomes:
        if o.error:
            rows.append(f"| {o.name} | {o.error} | | | | |")
        else:
            rows.append(
                f"| {o.name} | {o.binary_fraction:.1%} | {o.torch_ms:.2f} | {o.ms:.2f} "
                f"| {o.torch_ms / max(o.ms, 1e-9):.2f} | {o.difference:.1e} |"
            )
    ratios = sorted(o.torch_ms / o.ms for o in outcomes if not o.error and o.ms)
    done = sum(not o.error for o in outcomes)
    ends = f" Over torch: lowest {ratios[0]:.2f}, median {median(ratios):.2f}." if ratios else ""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    head = f"{done} of {len(outcomes)} on {cpu_name()}, {instruction_sets()[0]}, {versions}."
    return "\n".join([head + ends, "", *rows, ""])


def write_table(page: Path, made: str) -> None:
    """Put a table in place of the page's; the words before it stay."""
    words = re.split(r"^\d+ of \d+ on ", page.read_text(), flags=re.MULTILINE)[0] if page.exists() else ""
    page.write_text(words + made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--small", action="store_true", help="the small sizes that tests take")
    parser.add_argument("--latent", nargs="+", default=["tucker"], choices=LATENTS)
    parser.add_argument("--repeats", type=int, default=20, help="timed runs of each; 0 times none")
    parser.add_argument("--table", type=Path, help="write the table to this page")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(GALLERY)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: none of {', '.join(GALLERY)}")
    if arguments.one:
        warnings.simplefilter("ignore")
        outcome = tried(arguments.names[0], arguments.latent[0], arguments.small, arguments.repeats)
        print(json.dumps(asdict(outcome)))
        return
    outcomes = []
    for name in arguments.names or GALLERY:
        for latent in arguments.latent:
            outcomes.append(in_a_process(name, latent, arguments.small, arguments.repeats))
            print(outcomes[-1], flush=True)
    print(table(outcomes))
    if arguments.table:
        write_table(arguments.table, table(outcomes))


if __name__ == "__main__":
    main()
