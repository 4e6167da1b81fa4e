"""The contestants and their requirements."""

from __future__ import annotations

from dataclasses import dataclass

PYECHO = "pyecho"
DISTRIBUTION = "data-echoing"
LIMIT = "memcpy"
BARE = "generator"


@dataclass(frozen=True)
class Contestant:
    """One way to do the work."""

    name: str
    """For the command line and the results."""
    title: str
    module: str
    """In `peers.contestants`."""
    requirements: str = ""
    """The file in `requirements/` which its environment is made from; "" for the runner's own."""
    package: str = ""
    """The distribution whose version is reported."""
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

    def function(self, kind: str) -> str:
        """Return the name of the function for this kind of work, or ""."""
        return self.examples if kind == "examples" else self.batches


CONTESTANTS = (
    Contestant(
        PYECHO,
        "pyecho",
        "pyecho_loader",
        package=DISTRIBUTION,
        examples="examples",
        batches="batches",
    ),
    Contestant(
        "pyecho-singly",
        "pyecho, source yields single examples",
        "pyecho_loader",
        package=DISTRIBUTION,
        examples="examples_singly",
    ),
    Contestant(
        LIMIT,
        "NumPy copies in blocks, all cores",
        "limits",
        package="numpy",
        examples="memcpy",
        exact=False,
        limit=True,
    ),
    Contestant(
        "memcpy-1",
        "NumPy copies in blocks, 1 thread",
        "limits",
        package="numpy",
        examples="memcpy_single",
        exact=False,
        limit=True,
    ),
    Contestant(BARE, "bare Python generator", "limits", batches="generator", limit=True),
    Contestant(
        "tf.data",
        "tf.data, flat_map of chunks",
        "tf_data",
        "tensorflow.txt",
        "tensorflow-cpu",
        examples="examples_by_chunk",
        batches="batches",
        tuned=True,
    ),
    Contestant(
        "tf.data-paper",
        "tf.data, flat_map of examples",
        "tf_data",
        "tensorflow.txt",
        "tensorflow-cpu",
        examples="examples",
        tuned=True,
    ),
    Contestant(
        "grain",
        "Grain",
        "google_grain",
        "grain.txt",
        "grain",
        examples="examples",
        batches="batches",
    ),
    Contestant(
        "torchdata.nodes",
        "torchdata.nodes",
        "torchdata_nodes",
        "torchdata.txt",
        "torchdata",
        examples="examples",
        batches="batches",
        tuned=True,
    ),
    Contestant(
        "dataloader",
        "torch DataLoader, 0 workers",
        "torch_loader",
        "torch.txt",
        "torch",
        examples="examples",
        batches="batches",
        tuned=True,
    ),
    Contestant(
        "dataloader-workers",
        "torch DataLoader, a worker per core",
        "torch_loader",
        "torch.txt",
        "torch",
        examples="examples_with_workers",
    ),
    Contestant(
        "spdl",
        "SPDL",
        "meta_spdl",
        "spdl.txt",
        "spdl-core",
        examples="examples",
        batches="batches",
        tuned=True,
    ),
    Contestant(
        "cpprb",
        "cpprb, add + sample",
        "replay_cpprb",
        "cpprb.txt",
        "cpprb",
        examples="examples",
        exact=False,
    ),
    Contestant(
        "torchrl",
        "torchrl, extend + sample",
        "replay_torchrl",
        "torchrl.txt",
        "torchrl",
        examples="examples",
        exact=False,
        tuned=True,
    ),
    Contestant(
        "monai",
        "MONAI ThreadDataLoader",
        "monai_loader",
        "monai.txt",
        "monai",
        batches="batches",
    ),
    Contestant(
        "numpy-stack",
        "Python list + np.stack",
        "plain_numpy",
        "numpy.txt",
        "numpy",
        examples="stacked",
    ),
    Contestant(
        "numpy-take",
        "NumPy, blocks + take",
        "plain_numpy",
        "numpy.txt",
        "numpy",
        examples="taken",
    ),
    Contestant(
        "torch-stack",
        "Python list + torch.stack",
        "plain_torch",
        "torch.txt",
        "torch",
        examples="stacked",
        tuned=True,
    ),
    Contestant(
        "torch-select",
        "PyTorch, blocks + index_select",
        "plain_torch",
        "torch.txt",
        "torch",
        examples="selected",
        tuned=True,
    ),
)


def named(names: tuple[str, ...]) -> list[Contestant]:
    """Return these contestants, pyecho and the limits, in the roster's order."""
    always = {PYECHO, LIMIT, BARE}
    return [each for each in CONTESTANTS if each.name in always or each.name in names]


def all_names() -> tuple[str, ...]:
    """Return the names of all contestants."""
    return tuple(each.name for each in CONTESTANTS)
