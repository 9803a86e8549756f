"""A binary network in the hands of torch's own tools: compiled, traced, sharded."""

import os
import sys
from pathlib import Path
from subprocess import run

import pytest
import torch
from tests.cases import slow_beside
from torch import distributed, nn
from torch._dynamo.utils import counters
from torch.distributed.fsdp import fully_shard

import bitfactor
from bitfactor.common.errors import InputError
from bitfactor.decompositions import JOINT, once


def network(latent="tucker"):
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)) for _ in range(4)]
    model = nn.Sequential(nn.Conv2d(3, 8, 3), *blocks, nn.Flatten(), nn.Linear(8 * 36, 10))
    groups = {"groups": "auto"} if latent == "holistic" else {}
    bitfactor.binarize_(model, latent=latent, **groups)
    return model


@pytest.mark.parametrize("latent", slow_beside(("holistic",), ("tucker", *JOINT)))
def test_weights_made_once_are_one_graph(latent):
    model, x = network(latent), torch.randn(2, 3, 8, 8)
    torch.compiler.reset()
    counters.clear()
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        with once(model):
            compiled(x).sum().backward()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_traced_network_answers_alike():
    model, x = network().eval(), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(torch.jit.trace(model, x)(x), model(x))
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), model(x))


@pytest.mark.parametrize("read", [torch.fx.symbolic_trace, torch.jit.script])
@pytest.mark.parametrize("latent", ["tucker", "holistic"])
def test_what_reads_code_says_what_to_take(read, latent):
    with pytest.raises(InputError, match=r"torch\.export"):
        read(network(latent))


def init(module):
    if isinstance(getattr(module, "weight", None), torch.Tensor) and module.weight.dim() > 1:
        nn.init.constant_(module.weight, 0.1)


def test_an_initialiser_of_a_made_weight_is_refused():
    with pytest.raises(InputError, match=r"layer\.latent\.parameters"):
        network().apply(init)
    model = network("none").apply(init)
    assert (model[1][0].latent() == 0.1).all()


def sharded(latent, how):
    """Return a network whose parameters are sharded: all in one group, block by block, or some together."""
    model = network(latent)
    for group in {"root": [], "blocks": [*model[1:5]], "together": [[*model[1:5]]]}[how]:
        fully_shard(group)
    fully_shard(model)
    return model


def trained(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    state = model.state_dict()
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in state.items()
    }


def check_sharded(rank, world, meeting):
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    try:
        for latent, how in (("tucker", "blocks"), ("holistic", "root"), ("shared", "together")):
            found, alone = trained(sharded(latent, how)), trained(network(latent))
            for name, value in alone.items():
                torch.testing.assert_close(found[name], value)
        for latent in ("holistic", "shared"):
            with pytest.raises(InputError, match=r"call fully_shard\(model\) alone"):
                sharded(latent, "blocks")
    finally:
        distributed.destroy_process_group()


def test_sharded_training_is_the_same(tmp_path):
    check_sharded(0, 1, tmp_path / "meeting")


@pytest.mark.slow
def test_sharded_training_of_two_processes_is_the_same(tmp_path):
    script = (
        "import sys, torch.multiprocessing as mp; from tests.nn.test_own_loops import check_sharded\n"
        "if __name__ == '__main__': mp.spawn(check_sharded, (2, sys.argv[1]), 2)\n"
    )
    file = tmp_path / "two.py"
    file.write_text(script)
    command, root = [sys.executable, file, tmp_path / "meeting"], str(Path(__file__).parents[2])
    there = {**os.environ, "PYTHONPATH": root}
    done = run(command, env=there, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
