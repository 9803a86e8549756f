"""What one step does with each option."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from lightning_fabric import Fabric
from rich.console import Console
from tests.training.toy import Stopping, Toy, same
from torch._dynamo import lookup_backend
from torch.nn import functional as F

from bitfactor.binarization import Binarization
from bitfactor.common.errors import InputError
from bitfactor.decompositions import orthogonality_penalty
from bitfactor.nn import BinaryConv2d, BinaryConvTranspose2d, BinaryLayer, BinaryLinear, LearnedScale
from bitfactor.training import (
    OPTIMIZERS,
    Classification,
    Optimization,
    Run,
    Teachable,
    Teacher,
    TerminatedError,
    build,
    train,
)
from bitfactor.training.flips import Flips
from bitfactor.training.metrics import Movement
from bitfactor.training.recipe import prepare
from bitfactor.training.step import Source, Stepper
from bitfactor.training.tasks import evaluate

LATENTS = ["none", "svd", "tucker", "holistic", "tt", "product", "cosine", "window"]


@pytest.fixture
def stepper_of(recipe_of_toy):
    """Return a stepper for the toy, with options of the plan."""

    def stepper(teacher=None, **options):
        return Stepper(prepare(recipe_of_toy(**options), None), teacher)

    return stepper


def gradients(stepper):
    return {name: p.grad.clone() for name, p in stepper.network.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("parts", [2, 4])
def test_accumulation_gives_the_gradient_of_the_whole_batch(stepper_of, toy, parts):
    inputs, target = toy.images(0, 16)
    whole, split = stepper_of(batch_norm="frozen"), stepper_of(batch_norm="frozen", grad_accum_steps=parts)
    losses = [float(stepper.loss_of(inputs, target, 0)) for stepper in (whole, split)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    one, two = gradients(whole), gradients(split)
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-6)


def test_a_batch_that_cannot_be_shared_out_is_named(stepper_of):
    with pytest.raises(InputError, match="--batch-size: expected a multiple of 3"):
        stepper_of(grad_accum_steps=3)


def test_clipping_bounds_the_norm(stepper_of, toy):
    """RMSprop without history moves by the gradient's sign, so the gradient itself is looked at."""
    stepper = stepper_of(max_grad_norm=1e-3)
    stepper.loss_of(*toy.images(0, 16), 0)
    stepper.update()
    norm = torch.cat([gradient.flatten() for gradient in gradients(stepper).values()]).norm()
    assert norm == pytest.approx(1e-3, rel=1e-3)


def test_frozen_statistics_do_not_move(stepper_of, toy):
    for batch_norm, moves in (("frozen", False), ("batch", True)):
        stepper = stepper_of(batch_norm=batch_norm)
        before = copy.deepcopy(stepper.network.bn1.running_mean)
        stepper.loss_of(*toy.images(0, 16), 0)
        assert torch.equal(before, stepper.network.bn1.running_mean) is not moves


def test_staged_weights_are_real_first(stepper_of, toy):
    """Three steps an epoch, two epochs of the first stage; each stage has the whole cosine."""
    stepper = stepper_of(epochs=4, real_weight_epochs=2, ema=0.9)
    for step, binary in ((0, False), (5, False), (6, True), (11, True)):
        stepper.loss_of(*toy.images(0, 16), step)
        for model in (stepper.network, stepper.evaluated):
            layers = [layer for layer in model.modules() if isinstance(layer, BinaryLayer)]
            assert {layer.binary_weights for layer in layers} == {binary}
            assert all(layer.binary_activations for layer in layers)
    rates = [stepper.learning_rate(step) for step in range(12)]
    assert rates[6:] == pytest.approx(rates[:6])
    assert rates[0] > rates[5]


def test_annealed_signs_are_as_soft_where_weights_turn_binary_as_at_the_start(stepper_of, toy):
    annealed = Binarization(latent="none", weight_estimator="annealed")
    stepper = stepper_of(epochs=4, real_weight_epochs=2, binarization=annealed)
    for step, progress in ((0, 0), (3, 0.5), (6, 0), (9, 0.5)):
        stepper.loss_of(*toy.images(0, 16), step)
        found = [b for name, b in stepper.network.named_buffers() if name.endswith("progress")]
        assert found
        assert {float(buffer) for buffer in found} == {progress}


def test_each_process_mixes_its_images_by_the_same_fraction(stepper_of, toy, monkeypatch):
    stepper, batch = stepper_of(mixup=0.4, cutmix=1.0), toy.images(0, 16)
    first = [stepper._softened(*batch, step) for step in range(4)]
    monkeypatch.setattr(type(stepper.fabric), "global_rank", 1)
    for step, (inputs, soft) in enumerate(first):
        there = stepper._softened(*batch, step)
        assert torch.equal(there[0], inputs)
        assert torch.equal(there[1], soft)


@pytest.mark.parametrize(("step", "decay"), [(0, 0.1), (5, 0.4), (90, 0.75)])
def test_moving_average(stepper_of, toy, step, decay):
    stepper = stepper_of(ema=0.75)
    start = copy.deepcopy(stepper.network.state_dict())
    stepper.loss_of(*toy.images(0, 16), step)
    stepper.update()
    now, average = stepper.network.state_dict(), stepper.evaluated.state_dict()
    for name in ("fc.weight", "layer1.0.conv1.latent.core", "bn1.running_mean"):
        torch.testing.assert_close(average[name], decay * start[name] + (1 - decay) * now[name])
    assert average["bn1.num_batches_tracked"] == 1


def test_teacher(stepper_of, recipe_of_toy, toy):
    inputs, target = toy.images(0, 16)
    teacher = build(recipe_of_toy(real=True, seed=3)).eval()
    alone = stepper_of(None, batch_norm="frozen")
    recipe = recipe_of_toy(batch_norm="frozen", teacher="runs/float", teacher_weight=0.25)
    taught = Stepper(prepare(recipe, None), teacher)
    with torch.no_grad():
        scores = alone.network.eval()(inputs)
        own = F.cross_entropy(scores, target)
        of_teacher = F.cross_entropy(scores, teacher(inputs).softmax(1))
    assert float(alone.loss_of(inputs, target, 0)) == pytest.approx(float(own), rel=1e-5)
    expected = 0.75 * own + 0.25 * of_teacher
    assert float(taught.loss_of(inputs, target, 0)) == pytest.approx(float(expected), rel=1e-5)
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_a_fresh_draw_leaves_nothing_of_another_run(recipe_of_toy):
    recipe = recipe_of_toy(binarization=Binarization(latent="none", start="he"))
    with pytest.raises(InputError, match="--start: expected the weights of --from, found he"):
        build(recipe, Source(recipe.model()))


@pytest.mark.parametrize("latent", ["none", "tucker"])
def test_movement_sees_the_same_gradient_however_a_batch_is_shared_out(stepper_of, toy, latent):
    found = []
    for parts in (1, 2, 4):
        stepper = stepper_of(
            binarization=Binarization(latent=latent), batch_norm="frozen", grad_accum_steps=parts
        )
        movement = Movement(stepper.network)
        stepper.loss_of(*toy.images(0, 16), 0)
        found.append([one.gradient for one in movement(stepper.update, 1e-3).values()])
    assert min(found[0]) > 0
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


def test_a_teacher_that_is_named_must_be_given(recipe_of_toy):
    with pytest.raises(InputError, match="expected the network of runs/float, found none"):
        Stepper(prepare(recipe_of_toy(teacher="runs/float"), None))


class Smaller(torch.nn.Module):
    def forward(self, x):
        return x.new_zeros(len(x), 2)


class Larger(torch.nn.Module):
    def forward(self, x):
        return x.view(len(x), 3, 16, 16).mean((2, 3))


@pytest.mark.parametrize(
    ("network", "labels", "said"),
    [
        (Smaller(), (), r"one whose features tell them apart, found one of 2 outputs, whose features are"),
        (
            torch.nn.Identity(),
            (),
            r"expected outputs \(1, 3\) for inputs \(1, 1, 8, 8\), found \(1, 1, 8, 8\)",
        ),
        (Larger(), (), "found RuntimeError"),
        (Smaller(), ("a", "b"), "expected the 3 classes of the data, found a network of 2"),
        (Smaller(), ("a", "b", "z"), "found a network of 3 others, such as z"),
    ],
)
def test_a_teacher_of_other_classes_or_size_is_refused(network, labels, said, recipe_of_toy):
    with pytest.raises(InputError, match=f"--teacher: .*{said}"):
        Stepper(prepare(recipe_of_toy(teacher="runs/float"), None), Teacher(network, labels))


def test_a_teacher_alone_sees_inputs_as_it_knows_them(recipe_of_toy, toy):
    inputs, target = toy.images(0, 16)
    network = build(recipe_of_toy(real=True, seed=3)).eval()
    recipe = recipe_of_toy(batch_norm="frozen", teacher="runs/float", teacher_weight=1.0)
    taught = Stepper(prepare(recipe, None), Teacher(network, mean=(0.5,), std=(2.0,)))
    with torch.no_grad():
        scores = taught.network.eval()(inputs)
        expected = F.cross_entropy(scores, network((inputs - 0.5) / 2).softmax(1))
    assert float(taught.loss_of(inputs, target, 0)) == pytest.approx(float(expected), rel=1e-5)


class Other(torch.nn.Module):
    """A network of five classes that sees all pixels, and reads them in a linear layer or in none."""

    def __init__(self, linear):
        super().__init__()
        torch.manual_seed(0)
        self.fc = torch.nn.Linear(64, 5) if linear else torch.nn.Identity()

    def forward(self, x):
        return self.fc(x.flatten(1))


@pytest.mark.parametrize("linear", [True, False])
def test_a_teacher_of_other_classes_learns_a_head_of_its_features(linear, recipe_of_toy, toy):
    recipe = recipe_of_toy(batch_norm="frozen", teacher="my.py:net", teacher_weight=1.0)
    taught = Stepper(prepare(recipe, None), Teacher(Other(linear)))
    inputs, target = toy.images(0, 64)
    scores = taught.teacher(inputs)
    assert scores.shape == (64, 3)
    assert float((scores.argmax(1) == target).float().mean()) > 0.6
    outputs = 5 if linear else 64
    assert f"the teacher has {outputs} outputs: a linear head of its features for the 3 classes" in (
        taught.teacher.note
    )
    again = Stepper(prepare(recipe, None), Teacher(Other(linear)))
    assert torch.equal(again.teacher(inputs), scores)
    trial = Stepper(prepare(recipe, None), Teacher(Other(linear)), head_images=0)
    assert trial.teacher(inputs).shape == (64, 3)


def test_the_first_stage_has_a_rate_and_a_decay_of_its_own(stepper_of, toy):
    stages = {"real_weight_epochs": 1, "real_weight_rate": 1e-2, "real_weight_decay": 0.1}
    stepper = stepper_of(epochs=2, **stages)
    found = []
    for step in (0, stepper.steps):
        stepper.loss_of(*toy.images(0, 16), step)
        groups = {group["name"]: group for group in stepper.optimizer.param_groups}
        found.append((groups["latents"]["lr"], groups["latents"]["weight_decay"]))
        assert groups["rest"]["weight_decay"] == 0
    assert found == [(1e-2, 0.1), (5e-3, 0.0)]


def test_a_stage_shorter_than_its_warm_up_is_refused(stepper_of):
    with pytest.raises(InputError, match="--warmup-epochs: expected at most the 2 epochs of the training"):
        stepper_of(warmup_epochs=3)
    with pytest.raises(InputError, match="--warmup-epochs: expected at most the 1 epochs of each stage"):
        stepper_of(epochs=4, warmup_epochs=2, real_weight_epochs=1)


def test_smoothed_labels_that_count_for_nothing_are_refused(recipe_of_toy):
    recipe = recipe_of_toy(teacher="runs/float", teacher_weight=1.0, label_smoothing=0.1)
    with pytest.raises(InputError, match="--label-smoothing: expected 0 with --teacher-weight 1"):
        Stepper(prepare(recipe, None), build(recipe_of_toy(real=True)))


def test_what_decays_can_be_chosen(stepper_of):
    stepper = stepper_of(weight_decay=0.1, decayed=("alphas",))
    decays = {group["name"]: group["weight_decay"] for group in stepper.optimizer.param_groups}
    assert {name for name, decay in decays.items() if decay} == {"alphas"}


def test_decay_leaves_scales_biases_and_normalisations_alone(stepper_of):
    stepper = stepper_of(weight_decay=0.1)
    decays = {
        id(parameter): group["weight_decay"]
        for group in stepper.optimizer.param_groups
        for parameter in group["params"]
    }
    network = stepper.network
    assert len(decays) == len(list(network.parameters()))
    scale = network.layer1[0].conv1.scale
    assert isinstance(scale, LearnedScale)
    for parameter in (scale.alpha, network.fc.bias, network.bn1.weight, network.bn1.bias):
        assert decays[id(parameter)] == 0
    for parameter in (network.layer1[0].conv1.latent.core, network.fc.weight, network.conv1.weight):
        assert decays[id(parameter)] == 0.1


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_each_optimizer_and_precision_lowers_the_loss(stepper_of, toy, optimizer, precision):
    rates = {"sgd": 0.1, "muon": 0.02}
    rate = {"learning_rate": rates[optimizer]} if optimizer in rates else {}
    stepper = stepper_of(optimizer=optimizer, precision=precision, channels_last=True, epochs=100, **rate)
    losses = []
    for step in range(20):
        losses.append(float(stepper.loss_of(*toy.images(0, 16), step)))
        stepper.update()
    assert min(losses[-5:]) < 0.7 * losses[0]
    assert {parameter.dtype for parameter in stepper.network.parameters()} == {torch.float32}


def test_precision_and_layout_reach_the_layers(stepper_of, toy):
    stepper, seen = stepper_of(precision="bfloat16", channels_last=True), []
    layer = next(m for m in stepper.network.modules() if isinstance(m, BinaryLayer))
    layer.register_forward_hook(lambda module, inputs, output: seen.append((*inputs, output)))
    stepper.loss_of(*toy.images(0, 16), 0)
    ((x, y),) = seen
    assert y.dtype == torch.bfloat16
    assert x.shape[1] > 1
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_the_penalty_is_part_of_the_loss(stepper_of, toy):
    losses = []
    for weight in (0.0, 0.5):
        stepper = stepper_of(binarization=Binarization(latent="tucker", orthogonality=weight))
        for name, parameter in stepper.network.named_parameters():
            if "factors" in name:
                parameter.data.mul_(2)
        losses.append(float(stepper.loss_of(*toy.images(0, 16), 0)))
    penalty = float(orthogonality_penalty(stepper.network))
    assert penalty > 0
    assert losses[1] - losses[0] == pytest.approx(0.5 * penalty, rel=1e-4)


@pytest.mark.parametrize("latent", LATENTS)
def test_channels_last_changes_the_layout_alone(stepper_of, toy, latent):
    """Also where a core has more than four modes, as a bank's has."""
    binarization = Binarization(latent=latent, groups="auto" if latent == "holistic" else None)
    batch = next(toy.train_batches(16, 0, 0))
    losses = [
        stepper_of(binarization=binarization, channels_last=last).loss_of(*batch, 0) for last in (False, True)
    ]
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)


def test_mixup_and_smoothing_need_classes(recipe_of_toy):
    class Other:
        headline = "score"

    recipe = recipe_of_toy(mixup=0.2)
    object.__setattr__(recipe, "task", Other())
    with pytest.raises(InputError, match="--mixup: expected a recipe that classifies"):
        Stepper(prepare(recipe, None))
    assert not isinstance(Other(), Teachable)


@pytest.mark.slow
def test_a_compiled_network_takes_the_same_step(stepper_of, toy):
    """Staged, so that it is compiled for real and for binary weights."""
    plain, compiled = (
        stepper_of(compile=flag, epochs=4, real_weight_epochs=2, batch_norm="frozen")
        for flag in (False, True)
    )
    for step in (0, 6):
        losses = [float(stepper.loss_of(*toy.images(0, 16), step)) for stepper in (plain, compiled)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert plain.state()["model"].keys() == compiled.state()["model"].keys()


def test_a_compiled_bank_is_one_graph_in_all_steps(stepper_of, toy, monkeypatch):
    torch.compiler.reset()
    graphs = []

    def kept(graph, inputs):
        graphs.append(graph)
        return lookup_backend("aot_eager")(graph, inputs)

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=kept))
    bank = Binarization(latent="holistic", groups="auto")
    plain, compiled = (stepper_of(binarization=bank, compile=flag) for flag in (False, True))
    for step in range(3):
        losses = [float(stepper.loss_of(*toy.images(step, 16), step)) for stepper in (plain, compiled)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        plain.update()
        compiled.update()
    (graph,) = graphs
    made = [node for node in graph.graph.nodes if node.target == "unbind"]
    assert len(made) == 1 + 2, "one bank of two layers, and two layers by themselves"


def test_factors_at_rate_zero_stay_and_the_schedule_keeps_their_ratio(stepper_of, toy):
    stepper = stepper_of(factor_rate=0.0)
    latents = [layer.latent for layer in stepper.network.modules() if isinstance(layer, BinaryLayer)]
    before = [[factor.detach().clone() for factor in latent.factors] for latent in latents]
    cores = [latent.core.detach().clone() for latent in latents]
    stepper.loss_of(*toy.images(0, 16), 0)
    stepper.update()
    for latent, core, factors in zip(latents, cores, before, strict=True):
        assert not torch.equal(latent.core, core)
        assert all(torch.equal(now, then) for now, then in zip(latent.factors, factors, strict=True))


def test_unit_factors_at_rate_zero_train_as_a_free_weight(stepper_of, toy):
    """So what a decomposition with slower factors can reach contains what a free weight does, bit for bit."""
    free = stepper_of(binarization=Binarization(latent="none"), factor_rate=0.0)
    unit = Binarization(latent="tucker", initialisation="identity")
    product = stepper_of(binarization=unit, factor_rate=0.0)
    for step in range(6):
        losses = [float(stepper.loss_of(*toy.images(step, 16), step)) for stepper in (free, product)]
        assert losses[0] == losses[1]
        for stepper in (free, product):
            stepper.update()
    ours, theirs = (
        [layer.latent().detach() for layer in stepper.network.modules() if isinstance(layer, BinaryLayer)]
        for stepper in (product, free)
    )
    assert ours
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def _flips(**options):
    """Return the flips of a layer of one filter, and their plan."""
    layer = BinaryLinear(4, 1, latent="none", bias=False)
    with torch.no_grad():
        layer.latent.weight.copy_(torch.tensor([[0.5, -0.5, 0.5, -0.5]]))
    return Flips.of(layer), Optimization(epochs=1, batch_size=1, learning_rate=1.0, **options)


def test_a_small_gradient_is_scaled_up_to_a_fraction_of_its_filter():
    flips, plan = _flips(gradient_floor=0.1)
    for size, expected in ((0.001, 0.1), (3.0, 3.0)):
        flips.weight.grad = torch.tensor([[size, 0.0, 0.0, 0.0]])
        flips.before_step(plan)
        torch.testing.assert_close(flips.weight.grad, torch.tensor([[expected, 0.0, 0.0, 0.0]]))


def test_weights_that_do_not_flip_decay():
    flips, plan = _flips(silent_decay=0.1)
    flips.rate[0, 0] = 0.5
    flips.weight.grad = torch.zeros(1, 4)
    flips.before_step(plan)
    torch.testing.assert_close(flips.weight.grad, torch.tensor([[0.0, -0.05, 0.05, -0.05]]))


def test_a_weight_that_flips_all_the_time_keeps_its_usual_sign():
    flips, plan = _flips(freeze_flips=0.002)
    weight = flips.weight.detach()
    for _ in range(6):
        weight[0, 0] *= -1
        flips.after_step(plan)
    assert flips.frozen.tolist() == [[True, False, False, False]]
    assert float(weight[0, 0]) == -0.5  # it was negative in two of the three steps before
    weight *= -1
    flips.after_step(plan)
    assert weight[0, 0] == -0.5


@pytest.mark.parametrize("usual", [1, -1])
def test_the_usual_sign_is_that_of_most_steps(usual):
    """Whatever it was at first, which had counted for 693 steps."""
    flips, plan = _flips(freeze_flips=0.02)
    weight = flips.weight.detach()
    for i in range(90):
        weight.copy_(torch.full_like(weight, 0.5 * usual * (-1 if i % 3 == 0 else 1)))
        flips.after_step(plan)
    assert flips.frozen.all()
    assert (weight == 0.5 * usual).all()


def test_the_gradient_floor_is_of_filters_also_where_weights_lie_otherwise():
    layer = BinaryConvTranspose2d(4, 6, 3, latent="none", scale="none", bias=False)
    weight = layer.latent.weight
    with torch.no_grad():
        weight[:, 0] *= 10
    weight.grad = torch.full_like(weight, 1e-5)
    Flips.of(layer).before_step(Optimization(1, 1, 0.1, gradient_floor=0.02))
    pairs = zip(layer.filters(weight.grad), layer.filters(weight.detach()), strict=True)
    for gradient, filter_ in pairs:
        assert float(gradient.norm()) == pytest.approx(0.02 * float(filter_.norm()), rel=1e-4)


def test_weights_that_are_transformed_otherwise_are_said(stepper_of, recipe_of_toy):
    source = build(recipe_of_toy(binarization=Binarization(latent="none", weight_transform="centred")))
    with pytest.warns(UserWarning, match="--from: weights are plain where it has centred"):
        build(recipe_of_toy(binarization=Binarization(latent="none")), Source(source))


def test_flips_are_part_of_a_checkpoint(recipe_of_toy, tmp_path):
    options = {"gradient_floor": 0.02, "silent_decay": 1e-3, "freeze_flips": 1e-3, "optimizer": "sgd"}
    recipe = recipe_of_toy(binarization=Binarization(latent="none"), **options)
    whole, broken = Run(tmp_path / "whole"), Run(tmp_path / "broken")
    train(recipe, whole.path, Console(quiet=True))
    with pytest.raises(TerminatedError):
        train(replace(recipe, data=lambda _: Stopping(Toy(), 2)), broken.path, Console(quiet=True))
    train(recipe, broken.path, Console(quiet=True))
    assert same(whole.load()["flips"], broken.load()["flips"])
    assert same(whole.load()["model"], broken.load()["model"])


def test_flips_begin_anew_where_weights_turn_binary(stepper_of, toy):
    """While weights are real their signs say nothing: none counts as a flip, and none is frozen for it."""
    options = {"binarization": Binarization(latent="none"), "real_weight_epochs": 1, "freeze_flips": 5e-4}
    stepper = stepper_of(epochs=2, learning_rate=1e-9, **options)
    first = stepper.flips[0].weight
    with torch.no_grad():
        first.neg_()
    stepper.loss_of(*toy.images(0, 16), stepper.steps)
    stepper.update()
    assert not any(flips.frozen.any() for flips in stepper.flips)
    assert torch.equal(stepper.flips[0].sign, first > 0)


@pytest.mark.parametrize("off", [{"real": True}, {"binarization": Binarization(weights=False)}])
def test_without_binary_weights_there_is_one_stage(off, stepper_of):
    stepper = stepper_of(epochs=4, real_weight_epochs=2, **off)
    rates = [stepper.learning_rate(step * stepper.steps) for step in range(4)]
    assert rates == sorted(rates, reverse=True)
    assert len({*rates}) == 4


def test_a_merge_is_within_the_epochs_that_so_many_steps_take(stepper_of):
    assert stepper_of(epochs=2, steps=15, merge_epoch=4).plan.epochs == 5
    with pytest.raises(InputError, match="--merge-epoch: expected fewer than 5, found 5"):
        stepper_of(epochs=2, steps=15, merge_epoch=5)


@pytest.mark.parametrize(
    ("binarization", "found"),
    [
        (Binarization(latent="tucker"), "latent tucker"),
        (Binarization(latent="none", weight_transform="centred"), "weight_transform centred"),
    ],
)
def test_flips_are_those_of_free_weights(binarization, found, stepper_of):
    with pytest.raises(InputError, match=f"--silent-decay: expected a binary network.*found {found}"):
        stepper_of(binarization=binarization, silent_decay=0.1)


def test_layers_that_a_network_has_binary_already_are_warned_of(recipe_of_toy):
    recipe = recipe_of_toy()

    def model():
        made = recipe.model()
        width = made.layer1[0].conv1.in_channels
        made.layer1[0].conv1 = BinaryConv2d(width, width, 3, padding=1, latent="svd", bias=False)
        return made

    with pytest.warns(UserWarning, match="get the options of the recipe: layer1.0.conv1"):
        build(replace(recipe, model=model))


def test_an_evaluation_changes_nothing_and_weighs_batches_by_their_images(recipe_of_toy, toy):
    model = build(recipe_of_toy()).train()
    before = copy.deepcopy(model.state_dict())
    found = evaluate(Fabric(accelerator="cpu"), model, Classification(), toy.test_batches(20))  # 20 and 10
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    batches = [*toy.test_batches(20)]
    inputs, target = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert [len(x) for x, _ in batches] == [20, 10]
    with torch.no_grad():
        expected = F.cross_entropy(model.eval()(inputs), target)
    assert found["test_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_a_teacher_of_the_same_classes_in_another_order_is_refused(recipe_of_toy):
    other = Teacher(build(recipe_of_toy(real=True)), ("c", "b", "a"))
    with pytest.raises(InputError, match="--teacher: expected the 3 classes of the data"):
        Stepper(prepare(recipe_of_toy(teacher="runs/float"), None), other)


def test_what_a_step_draws_is_its_own_and_depends_on_nothing_before(stepper_of, toy):
    stepper, batch = stepper_of(mixup=0.5), toy.images(0, 16)

    def drawn(step):
        stepper._prepare(step)
        return torch.rand(8)

    first = drawn(3)
    torch.rand(5)
    assert torch.equal(drawn(3), first)
    assert not torch.equal(drawn(4), first)
    assert not torch.equal(stepper._softened(*batch, 3)[0], stepper._softened(*batch, 4)[0])


def test_a_teacher_sees_images_of_its_own_side():
    x = torch.randn(2, 3, 12, 12)
    expected = F.interpolate(x, (8, 8), mode="bilinear", antialias=True)
    torch.testing.assert_close(Teacher(torch.nn.Identity(), side=8)(x), expected)
