# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
# ---

# %% [markdown]
# # Your model, binary, in your own loop
#
# A small float network learns handwritten digits. It becomes binary in one call, learns on in the
# same loop, and runs from a file without torch. All of it takes seconds on one core.

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


def block(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.PReLU()]


torch.manual_seed(0)
net = nn.Sequential(
    *block(1, 32), *block(32, 32), *block(32, 32), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)
)

# %% [markdown]
# The loop is plain torch. `once` makes each weight of a decomposition once in a step.


# %%
def fit(optimizer, epochs):
    losses = []
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(1437).split(64):
            with bitfactor.decompositions.once(net):
                loss = F.cross_entropy(net(images[train][rows]), classes[train][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    net.eval()
    return losses


real = fit(torch.optim.Adam(net.parameters(), 4e-3), epochs=2)

# %% [markdown]
# `check` says what would become binary, and whether a file can hold it. It changes nothing.

# %%
print(bitfactor.check(net, images[:2], latent="tucker"))

# %% [markdown]
# `binarize_` starts from the trained weights. Make the optimizer after it: the parameters are others.

# %%
print(bitfactor.binarize_(net, latent="tucker", scale="learned", example=images[:2]))
binary = fit(torch.optim.Adam(bitfactor.parameter_groups(net, lr=4e-3)), epochs=4)

plt.plot(real, label="full precision")
plt.plot(range(len(real), len(real) + len(binary)), binary, label="binary")
plt.xlabel("step")
plt.ylabel("training loss")
plt.legend()
plt.show()

# %% [markdown]
# The file holds signs, one bit each. `Session` needs numpy alone.

# %%
spec = bitfactor.InputSpec(size=(8, 8), resize=(8, 8), mean=(0.5,), std=(0.5,))  # what `images` is
print(bitfactor.export(net, "digits.safetensors", images[:2], input_spec=spec))
scores = bitfactor.Session("digits.safetensors")(images[test].numpy())
accuracy = (scores.argmax(1) == classes[test].numpy()).mean()
print(f"{accuracy:.1%} of the test images")
