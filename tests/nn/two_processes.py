"""One of two processes of a DistributedDataParallel step, run by test_stack.py: rank, meeting file, latent.

Gradients must equal those of one process on the joined batch, BatchNorm frozen.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bitfactor.binarization import Binarization, binarize_
from bitfactor.models import ResNet


def frozen_model(latent: str) -> nn.Module:
    torch.manual_seed(0)
    model = ResNet((1, 2), (8, 16), num_classes=3, stem="cifar")
    binarize_(model, Binarization(latent=latent, groups="auto" if latent == "holistic" else None))
    return model.eval().double()


def gradients(model: nn.Module, inner: nn.Module, x: Tensor) -> dict[str, Tensor]:
    model(x).square().mean().backward()
    return {name: parameter.grad for name, parameter in inner.named_parameters()}


def main(rank: int, meeting: str, latents: list[str]) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    for latent in latents:
        x = torch.randn(4, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        inner = frozen_model(latent)
        found = gradients(DistributedDataParallel(inner), inner, x[2 * rank : 2 * rank + 2])
        alone = frozen_model(latent)
        expected = gradients(alone, alone, x)
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            print(latent, name, file=sys.stderr)
            torch.testing.assert_close(found[name], gradient)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
