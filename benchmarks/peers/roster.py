"""The contestants and their requirements."""

from __future__ import annotations

from dataclasses import dataclass

PYECHO = "pyecho"
DISTRIBUTION = "data-echoing"
LIMIT = "memcpy"
BARE = "generator"
ENVIRONMENTS = {
    "pyecho_loader": ("", DISTRIBUTION),
    "limits": ("", "numpy"),
    "tf_data": ("tensorflow.txt", "tensorflow-cpu"),
    "google_grain": ("grain.txt", "grain"),
    "torchdata_nodes": ("torchdata.txt", "torchdata"),
    "torch_loader": ("torch.txt", "torch"),
    "meta_spdl": ("spdl.txt", "spdl-core"),
    "replay_cpprb": ("cpprb.txt", "cpprb"),
    "replay_torchrl": ("torchrl.txt", "torchrl"),
    "monai_loader": ("monai.txt", "monai"),
    "plain_numpy": ("numpy.txt", "numpy"),
    "plain_torch": ("torch.txt", "torch"),
}
"""By module: the file in `requirements/` from which its environment is made ("" for the runner's
own), and the distribution whose version is reported."""


@dataclass(frozen=True)
class Contestant:
    """One way to do the work."""

    name: str
    """For the command line and the results."""
    title: str
    module: str
    """In `peers.contestants`."""
    examples: str = ""
    """The module's function for example echoing; "" if it has none."""
    batches: str = ""
    """The module's function for batch echoing; "" if it has none."""
    exact: bool = True
    """It promises that every example is used exactly as often as the factor says."""
    tuned: bool = False
    """Its number of threads is an option, and more are not always faster: try one, too."""
    limit: bool = False
    """True for a limit: not a tool, but the minimum of work that any tool must do."""

    @property
    def requirements(self) -> str:
        """The file of its environment."""
        return ENVIRONMENTS[self.module][0]

    @property
    def package(self) -> str:
        """The distribution whose version is reported."""
        return ENVIRONMENTS[self.module][1]

    def function(self, kind: str) -> str:
        """Return the name of the function for this kind of work, or ""."""
        return self.examples if kind == "examples" else self.batches


def _limit(name: str, title: str, examples: str = "", batches: str = "") -> Contestant:
    return Contestant(name, title, "limits", examples, batches, exact=False, limit=True)


def _tuned(name: str, title: str, module: str, examples: str, batches: str = "") -> Contestant:
    return Contestant(name, title, module, examples, batches, tuned=True)


def _sampling(name: str, module: str, how: str, *, tuned: bool = False) -> Contestant:
    return Contestant(name, f"{name}, {how}", module, "examples", exact=False, tuned=tuned)


CONTESTANTS = (
    Contestant(PYECHO, "pyecho", "pyecho_loader", "examples", "batches"),
    Contestant(
        "pyecho-singly",
        "pyecho, source yields single examples",
        "pyecho_loader",
        "examples_singly",
    ),
    _limit(LIMIT, "NumPy copies in blocks, all cores", "memcpy"),
    _limit("memcpy-1", "NumPy copies in blocks, 1 thread", "memcpy_single"),
    _limit(BARE, "bare Python generator", batches="generator"),
    _tuned("tf.data", "tf.data, flat_map of chunks", "tf_data", "examples_by_chunk", "batches"),
    _tuned("tf.data-paper", "tf.data, flat_map of examples", "tf_data", "examples"),
    Contestant("grain", "Grain", "google_grain", "examples", "batches"),
    _tuned("torchdata.nodes", "torchdata.nodes", "torchdata_nodes", "examples", "batches"),
    _tuned("dataloader", "torch DataLoader, 0 workers", "torch_loader", "examples", "batches"),
    Contestant(
        "dataloader-workers",
        "torch DataLoader, a worker per core",
        "torch_loader",
        "examples_with_workers",
    ),
    _tuned("spdl", "SPDL", "meta_spdl", "examples", "batches"),
    _sampling("cpprb", "replay_cpprb", "add + sample"),
    _sampling("torchrl", "replay_torchrl", "extend + sample", tuned=True),
    Contestant("monai", "MONAI ThreadDataLoader", "monai_loader", batches="batches"),
    Contestant("numpy-stack", "Python list + np.stack", "plain_numpy", "stacked"),
    Contestant("numpy-take", "NumPy, blocks + take", "plain_numpy", "taken"),
    _tuned("torch-stack", "Python list + torch.stack", "plain_torch", "stacked"),
    _tuned("torch-select", "PyTorch, blocks + index_select", "plain_torch", "selected"),
)


def named(names: tuple[str, ...]) -> list[Contestant]:
    """Return these contestants, pyecho and the limits, in the roster's order."""
    always = {PYECHO, LIMIT, BARE}
    return [each for each in CONTESTANTS if each.name in always or each.name in names]


def all_names() -> tuple[str, ...]:
    """Return the names of all contestants."""
    return tuple(each.name for each in CONTESTANTS)
