"""The modes of a Tucker weight that are small: those of the grid and of the taps.

    x[p] = sum_g rows[p, g] taps core[g],    taps applied to the last mode of core[g]

makes the core slices of P weights out of G cores, with the taps outermost as products of channels take them.
It is bound by memory, so the compiled core does it in one pass; without, it is a product with the Kronecker
product of rows and taps.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from bitfactor.decompositions import compiled
from bitfactor.decompositions.precision import matmul


def kronecker(matrices: Sequence[Tensor]) -> Tensor:
    """Return the Kronecker product of matrices, the last one varying fastest, of any strides."""
    product = matrices[0]
    for matrix in matrices[1:]:
        product = (product[:, None, :, None] * matrix[:, None]).flatten(2).flatten(0, 1)
    return product


def mix(cores: Tensor, rows: Tensor, taps: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x (P, T, R0, R1) in a type, of cores (G, R0, R1, t), rows (P, G) and taps (T, t); no gradients.

    Example
    -------
    >>> mix(torch.randn(2, 8, 4, 9), torch.randn(3, 2), torch.randn(9, 9), torch.float32).shape
    torch.Size([3, 9, 8, 4])
    """
    shape = (len(rows), len(taps), *cores.shape[1:3])
    if not _takes(cores, rows, taps, dtype):
        inner = cores.flatten(1, 2).mT.to(dtype).flatten(0, 1)  # (G t, R0 R1)
        return matmul(kronecker([rows, taps]).to(dtype), inner).view(shape)
    x = cores.new_empty(shape, dtype=dtype)
    compiled.trainer().mix(*_described(cores, rows, taps, x), x.data_ptr())
    return x


def unmix(of_x: Tensor, cores: Tensor, rows: Tensor, taps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of cores, rows and taps by that of x, in their own type."""
    if not _takes(cores, rows, taps, of_x.dtype):
        inner = cores.flatten(1, 2).mT.to(of_x.dtype).flatten(0, 1)
        of_x = of_x.flatten(2).flatten(0, 1)  # (P T, R0 R1)
        of_inner = matmul(kronecker([rows, taps]).to(of_x.dtype).mT, of_x).view(len(cores), taps.shape[1], -1)
        of_both = matmul(of_x, inner.mT).to(cores.dtype).view(len(rows), len(taps), *rows.shape[1:], -1)
        of_rows = (of_both * taps[:, None]).sum((1, 3))
        of_taps = (of_both * rows[:, None, :, None]).sum((0, 2))
        return of_inner.mT.to(cores.dtype).reshape(cores.shape), of_rows, of_taps
    of_cores, of_rows, of_taps = torch.empty_like(cores), torch.empty_like(rows), torch.empty_like(taps)
    addresses = [tensor.data_ptr() for tensor in (of_x, of_cores, of_rows, of_taps)]
    compiled.trainer().unmix(*_described(cores, rows, taps, of_x), *addresses)
    return of_cores, of_rows, of_taps


def _takes(cores: Tensor, rows: Tensor, taps: Tensor, dtype: torch.dtype) -> bool:
    return (
        compiled.available()
        and not torch.compiler.is_compiling()
        and cores.device.type == "cpu"
        and cores.dtype == rows.dtype == taps.dtype == torch.float32
        and dtype in (torch.float32, torch.bfloat16)
        and all(tensor.is_contiguous() for tensor in (cores, rows, taps))
    )


def _described(cores: Tensor, rows: Tensor, taps: Tensor, x: Tensor) -> tuple[list[int], bool, int, int, int]:
    sizes = [*rows.shape, *taps.shape, cores.shape[1] * cores.shape[2]]
    return sizes, x.dtype == torch.bfloat16, rows.data_ptr(), taps.data_ptr(), cores.data_ptr()
