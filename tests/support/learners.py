"""Learners whose repeats have a known worth, and what `pyecho.Worth` observes of them."""

import numpy as np

import pyecho


def info_of(use, items=None):
    use = np.asarray(use, np.int32)
    items = np.arange(len(use)) if items is None else items
    return pyecho.EchoInfo(np.asarray(items, np.int64), use)


def arrays_of(worth):
    return {name: np.asarray(value) for name, value in worth.state_dict().items()}


def observed(
    rho, *, seed=0, batches=3000, changing=True, batch=64, worth=None, shift=0.0, validated=False
):
    """Return what was observed of a learner whose repeats are worth rho[0], rho[1], ...

    `shift` raises its losses while the last batches have repeats.
    """
    rng = np.random.default_rng(seed)
    worth = worth or pyecho.Worth()
    worths = np.r_[1.0, rho]
    effective = recent = 0.0
    for step in range(batches):
        most = len(rho) if not changing or step // 250 % 2 else 0
        use = rng.integers(0, most + 1, batch)
        effective += worths[use].sum()
        recent += (np.mean(use > 0) - recent) / 30
        mean = (0.2 + 2 * (1 + effective / 3000) ** -0.5) * (1 + shift * recent)
        if validated and step % 25 == 0:
            worth.validation(mean * (1 + 0.005 * rng.normal()))
        losses = rng.gamma(2, mean / 2, batch)
        worth.observe(losses, info_of(use, step * batch + np.arange(batch)))
    return worth
