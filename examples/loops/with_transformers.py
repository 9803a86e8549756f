"""A binary network in the Trainer of Hugging Face's transformers.

python examples/loops/with_transformers.py [STEPS]
"""

import sys
import tempfile

from digits_to_train_on import BATCH, network, scans
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

import bitfactor


class Classifier(nn.Module):
    """A binary network that gives loss and logits, as the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        bitfactor.binarize_(self.network, latent="holistic", groups="auto")

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.network(images)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Scans(Dataset[dict[str, Tensor]]):
    """The scans, by the names of the forward's arguments."""

    def __init__(self) -> None:
        self.images, self.classes = scans()

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"images": self.images[i], "labels": self.classes[i]}


def train(steps: int = 20) -> list[float]:
    """Return the loss of each step."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=4e-3,
            logging_steps=1,
            save_steps=steps,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(Classifier(), arguments, train_dataset=Scans())
        trainer.train()
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]


if __name__ == "__main__":
    print(train(*map(int, sys.argv[1:2])))
