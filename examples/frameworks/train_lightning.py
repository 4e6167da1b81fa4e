"""Lightning: the loader goes to fit() as it is, and is saved and loaded with each checkpoint."""

import torch
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning
except ImportError:
    import pytorch_lightning as lightning

from pyecho.integrations.lightning import EchoCallback
from pyecho.torch import EchoLoader


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def training_step(self, batch):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(self.layer(inputs), labels)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        steps = self.trainer.estimated_stepping_batches  # counts the echoed batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def make_loader():
    dataset = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
    source = DataLoader(dataset, batch_size=8, shuffle=True)
    return EchoLoader(source, factor=2, batch_size=8, unbatch=True)


def main(logger=True):
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[EchoCallback()],
        logger=logger,  # True: TensorBoard, if it is installed
        log_every_n_steps=4,
        enable_progress_bar=False,
    )
    trainer.fit(Model(), make_loader())  # ckpt_path= goes on in the middle of an epoch
    return trainer


if __name__ == "__main__":
    main()
