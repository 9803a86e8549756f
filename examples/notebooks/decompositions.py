# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # What a decomposition changes
#
# A binary weight is the sign of a real-valued weight W. A decomposition computes W from factors, and
# the optimizer trains those. This notebook trains one small network with four of them.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import bitfactor

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1  # (N, 1, 8, 8)
classes = torch.tensor(digits.target)
train, test = slice(0, 1437), slice(1437, None)
LATENTS = ("none", "svd", "tucker", "window")

# %% [markdown]
# ## At the start all give the same W
#
# Each takes a weight apart exactly. So training starts at the same network, on another path.

# %%
weight = torch.randn(16, 16, 3, 3, generator=torch.Generator().manual_seed(0)) * 0.1
for latent in LATENTS:
    factors = bitfactor.decompositions.LAYERWISE[latent](weight)
    shapes = {name: tuple(factor.shape) for name, factor in factors.named_parameters()}
    print(f"{latent}: within {(factors() - weight).abs().max():.0e}, from {shapes}")

# %% [markdown]
# ## Train each


# %%
def network(latent):
    torch.manual_seed(0)
    middle = [
        part for _ in range(2) for part in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.PReLU())
    ]
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), *middle, nn.Flatten(), nn.Linear(16 * 64, 10)
    )
    bitfactor.binarize_(net, latent=latent, example=images[:2])
    return net


def fit(net, epochs=4):
    """Return the fraction of signs that flips in each step."""
    optimizer = torch.optim.Adam(bitfactor.parameter_groups(net, lr=4e-3))
    flips, layer = [], net[2]
    for _ in range(epochs):
        for rows in torch.randperm(1437).split(64):
            before = layer.binary_weight().detach()
            loss = F.cross_entropy(net(images[train][rows]), classes[train][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            flips.append((layer.binary_weight() != before).float().mean().item())
    net.eval()
    return flips


nets = {latent: network(latent) for latent in LATENTS}
flips = {latent: fit(net) for latent, net in nets.items()}

# %% [markdown]
# A step of factors moves W further than a step of W itself, so more signs flip.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
for latent, net in nets.items():
    left.plot(flips[latent], label=latent)
    right.hist(net[2].latent().detach().flatten().numpy(), bins=40, histtype="step", label=latent)
left.set(xlabel="step", ylabel="fraction of signs that flips")
right.set(xlabel="W", ylabel="count")
right.legend()
plt.show()

# %% [markdown]
# ## The file is the same size
#
# It holds signs and scales; the factors are gone. A few steps of one seed rank nothing: the study in
# `docs/results/evidence.md` has many steps and eight seeds.

# %%
spec = bitfactor.InputSpec(size=(8, 8), resize=(8, 8), mean=(0.5,), std=(0.5,))  # what `images` is
for latent, net in nets.items():
    report = bitfactor.export(net, f"{latent}.safetensors", images[:2], input_spec=spec)
    scores = bitfactor.Session(f"{latent}.safetensors")(images[test].numpy())
    accuracy = (scores.argmax(1) == classes[test].numpy()).mean()
    print(f"{latent}: {accuracy:.1%} of the test images, {report.file_bytes:,} bytes")
