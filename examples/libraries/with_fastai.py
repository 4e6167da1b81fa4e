"""A Learner whose training loader echoes."""

import torch
from fastai.data.core import DataLoaders
from fastai.learner import Learner

from pyecho.torch import EchoLoader

rows = [(torch.rand(4), torch.tensor(number % 2)) for number in range(64)]
loaders = DataLoaders.from_dsets(rows, rows[:16], bs=16, device="cpu")
loaders.train = EchoLoader(loaders.train, 2, batch_size=16, unbatch=True, shuffle_buffer=32)
learner = Learner(loaders, torch.nn.Linear(4, 2), loss_func=torch.nn.functional.cross_entropy)
learner.fit(2)
assert learner.train_iter == 2 * len(loaders.train) == 16
