"""Products of float32 matrices, in all layouts, are those of the definition, and so are their gradients."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitfactor.decompositions import precision
from bitfactor.decompositions.precision import bfloat16_training, matmul

SIZES = st.sampled_from([0, 1, 2, 3, 5, 16, 17, 33, 100])
LAYOUTS = {
    "contiguous": lambda x: x.clone(),
    "transposed": lambda x: x.mT.clone().mT,
    "every other row": lambda x: x.repeat_interleave(2, 0)[::2],
    "every other column": lambda x: x.repeat_interleave(2, 1)[:, ::2],
}


@given(m=SIZES, k=SIZES, n=SIZES, a_layout=st.sampled_from([*LAYOUTS]), b_layout=st.sampled_from([*LAYOUTS]))
def test_products_of_every_layout(m, k, n, a_layout, b_layout):
    a, b = LAYOUTS[a_layout](torch.randn(m, k)), LAYOUTS[b_layout](torch.randn(k, n))
    gradient = torch.randn(m, n)
    found = [matmul(a, b)]
    assert torch.equal(found[0], matmul(a.requires_grad_(), b.requires_grad_()))
    found += torch.autograd.grad(matmul(a, b), [a, b], gradient)
    a, b, gradient = a.detach().double(), b.detach().double(), gradient.double()
    expected = [a @ b, gradient @ b.mT, a.mT @ gradient]
    torch.testing.assert_close(found, [x.float() for x in expected], rtol=1e-4, atol=1e-4)


def test_rough_gradients_leave_the_product_alone(monkeypatch):
    monkeypatch.setattr("bitfactor.decompositions.precision.cpu_multiplies_bfloat16", lambda: True)
    a, b, gradient = torch.randn(17, 9, requires_grad=True), torch.randn(9, 33), torch.randn(17, 33)
    with bfloat16_training("cpu"):
        y = matmul(a, b)
    assert torch.equal(y, matmul(a, b))
    (rough,) = torch.autograd.grad(y, a, gradient)
    assert torch.equal(rough, (gradient.bfloat16() @ b.mT.bfloat16()).float())
    (fine,) = torch.autograd.grad(matmul(a, b), a, gradient)
    assert rough.sub(fine).abs().max() == pytest.approx(0, abs=0.1)


def test_the_compiler_of_torch_is_imported_only_where_something_is_compiled() -> None:
    code = "import sys, bitfactor.decompositions; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    marked = torch.compiler.assume_constant_result(lambda: True)
    assert vars(marked).items() <= vars(precision._precision_is_reduced).items()
