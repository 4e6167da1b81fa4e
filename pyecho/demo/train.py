"""Train one network to the target accuracy from one source with one echo factor."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from pyecho import ops
from pyecho.torch import EchoLoader

from .images import ImageSet, decode
from .source import READ, RemoteImages

BATCH_SIZE = 32
SHUFFLE_BUFFER = 128
STEPS_PER_TEST = 10
WIDTH = 24
LEAST_AREA = 0.7
"""Of an image, in a crop."""

# From bytes, channels last, to numbers from 0 to 1, channels first.
_INPUT = (ops.Normalize(0, 1), ops.ToCHW())


@dataclass
class Point:
    """The state of training at one test of the network."""

    seconds: float
    step: int
    accuracy: float


@dataclass
class Run:
    """The result of one training run.

    Seconds count from the first request for a batch to the last test. Tests are part of the
    training loop, also in `downstream_seconds`: t_down, the time for a batch during which the loop
    was busy. `fresh` counts the examples taken from the source, also those of later epochs.
    """

    factor: float
    seed: int
    reached: bool = False
    seconds: float = 0.0
    steps: int = 0
    fresh: int = 0
    downstream_seconds: float = 0.0
    curve: list[Point] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """That of the last test."""
        return self.curve[-1].accuracy


class Trainer:
    """A network, its optimizer and its test images.

    The learning rate is constant and the same for every echo factor: the fastest one without
    echoing, among several that were tried. Gradients are clipped, so that it suits other images,
    too. Tests use a running average of the weights, so that the noise of single steps does not
    decide when the target is reached. Test images are decoded from disk here, once; they never pass
    the slow line.
    """

    def __init__(self, images: ImageSet) -> None:
        self._shape = images.shape
        self._classes = len(images.classes)
        self.field = images.field
        self.augmentation = [ops.RandomResizedCrop(images.shape[1:], (LEAST_AREA, 1)), *_INPUT]
        """Every use of an image shows another part of it, natively, while it is copied."""
        tests = [decode(image.path, images.shape) for image in images.test]
        whole = [ops.Resize(images.shape[1:]), *_INPUT]
        with EchoLoader(
            tests, 1, batch_size=BATCH_SIZE, shuffle_buffer=0, fields={"": self.field}, ops=whole
        ) as loader:
            self._test_batches = [batch.clone() for batch in loader]
        self._test_labels = torch.tensor([image.label for image in images.test])
        self.start(seed=0)

    def start(self, seed: int) -> None:
        """Begin anew, with the initial weights that `seed` decides."""
        self._net = _new_network(self._shape, self._classes, seed)
        self._optimizer = torch.optim.SGD(
            self._net.parameters(), lr=0.1, momentum=0.9, nesterov=True
        )
        decay = get_ema_multi_avg_fn(0.95)  # type: ignore[no-untyped-call]
        self._average = AveragedModel(self._net, multi_avg_fn=decay)

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        """Take one optimizer step."""
        loss = functional.cross_entropy(self._net(batch["image"]), batch["label"])
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self._net.parameters(), 1.0)
        self._optimizer.step()
        self._average.update_parameters(self._net)

    def test_accuracy(self) -> float:
        """Return the share of test images that the network classifies correctly."""
        with torch.inference_mode():
            # One batch at a time, which is faster because the activations stay in the cache.
            guesses = [self._average(batch).argmax(dim=1) for batch in self._test_batches]
        return float((torch.cat(guesses) == self._test_labels).float().mean())


def train_to_target(
    trainer: Trainer,
    source: RemoteImages,
    *,
    factor: float,
    seed: int,
    target: float,
    max_steps: int,
    progress: bool = False,  # a bar
) -> Run:
    """Train anew until a test reaches the target accuracy, or the steps are used up.

    The seed decides the initial weights, the shuffling and the augmentation.
    """
    run = Run(factor, seed)
    trainer.start(seed)
    with EchoLoader(
        source,
        factor,
        batch_size=BATCH_SIZE,
        shuffle_buffer=SHUFFLE_BUFFER,
        seed=seed,
        fields={"image": trainer.field},
        ops={"image": trainer.augmentation},
        steps_per_epoch=max_steps,  # of as many passes as it takes
        progress=progress,
        **READ,
    ) as loader:
        busy, accuracy = 0.0, 0.0
        start = time.perf_counter()
        for step, batch in enumerate(loader, 1):
            received = time.perf_counter()
            trainer.step(batch)
            tested = step % STEPS_PER_TEST == 0 or step == max_steps
            if tested:
                accuracy = trainer.test_accuracy()
            now = time.perf_counter()
            busy += now - received
            if tested:
                run.steps, run.seconds, run.fresh = step, now - start, loader.stats().fresh
                run.downstream_seconds = busy / step
                run.curve.append(Point(run.seconds, step, accuracy))
                run.reached = accuracy >= target
            if run.reached:
                break
    return run


def _new_network(shape: tuple[int, int, int], classes: int, seed: int) -> nn.Module:
    """Build the network with the initial weights that `seed` decides.

    Weights keep the scale of the signal, so that learning begins at once.
    """
    torch.manual_seed(seed)
    channels, height, width = shape
    sizes = (channels, WIDTH, WIDTH, 2 * WIDTH, 2 * WIDTH)
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        layer = nn.Conv2d(inputs, outputs, 3, padding=1)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        layers += [layer, nn.ReLU()]
        if number % 2 == 0:
            layers.append(nn.MaxPool2d(2))
    pixels = (height // 4) * (width // 4)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(sizes[-1] * pixels, classes))
