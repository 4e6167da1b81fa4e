"""Accelerate: it shards the DataLoader, and pyecho echoes each process's share.

Run it with ``accelerate launch train_accelerate.py``, in any number of processes.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

from pyecho.integrations.accelerate import EchoLoader


def main(folder=None):
    accelerator = Accelerator(
        gradient_accumulation_steps=3,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dataset = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
    source = DataLoader(dataset, batch_size=8, shuffle=True)

    model, optimizer, source = accelerator.prepare(model, optimizer, source)
    loader = EchoLoader(source, 2, accelerator=accelerator, batch_size=8, unbatch=True)
    for _ in range(2):
        for inputs, labels in loader:  # on the device of this process
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    if folder:
        accelerator.save_state(folder)  # load_state() goes on in the middle of an epoch
    accelerator.log(loader.stats().scalars())  # to what log_with= names
    accelerator.end_training()
    return loader.stats()


if __name__ == "__main__":
    main()
