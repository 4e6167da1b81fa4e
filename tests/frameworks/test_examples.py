"""The examples of frameworks go on as they are printed, in a process with another seed."""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples/frameworks"
SAVED_AT, KILLED_AT = 10, 13  # steps

# The example's features tell which examples a step has seen. `checkpoint` is where the run is saved
# and goes on, as the comments of the example say; it exists in the second process.
COMMON = [
    ("torch.randn(96, 8)", "torch.arange(96.0)[:, None].repeat(1, 8)"),
    ("torch.manual_seed(0)", "torch.manual_seed(seed)"),
]
CHANGES = {
    "lightning": [
        ("EchoCallback()]", "EchoCallback(), Saves()], default_root_dir=checkpoint.parent"),
        ("make_loader())", "make_loader(), ckpt_path=checkpoint if checkpoint.exists() else None)"),
        (
            "def main(logger=True)",
            """class Saves(lightning.Callback):
    def on_train_batch_end(self, trainer, *arguments):
        save_now(lambda: trainer.save_checkpoint(checkpoint))


def main(logger=False)""",
        ),
    ],
    "fabric": [
        (
            "    for _ in range(2):\n",
            """    state = {"model": model, "optimizer": optimizer, "loader": loader}
    if checkpoint.exists():
        fabric.load(checkpoint, state)
    for _ in range(2):
""",
        ),
        ("step()\n", "step()\n            save_now(lambda: fabric.save(checkpoint, state))\n"),
        ("def main(checkpoint=", "def main(unused="),
        ("    fabric.save(checkpoint, {", "    len({"),
    ],
    "accelerate": [
        (
            "    for _ in range(2):\n",
            """    if checkpoint.exists():
        accelerator.load_state(checkpoint)
    for _ in range(2):
""",
        ),
        (
            "                optimizer.zero_grad()\n",
            """                optimizer.zero_grad()
            save_now(lambda: accelerator.save_state(checkpoint))
""",
        ),
    ],
    "transformers": [
        ("list(range(1, 2 + n % 7))", "[n] * (1 + n % 7)"),
        ("Embedding(50, 8, padding_idx=0)", "Embedding(64, 8)"),
        ('folder="checkpoints"', "folder=str(checkpoint)"),
        ("trainer.train()", "trainer.train(resume_from_checkpoint=any(checkpoint.glob('*')))"),
    ],
}
PROGRAM = """
import json, os, sys
from pathlib import Path
import torch

code, checkpoint = sys.argv[1], Path(sys.argv[2])
seed, saved_at, killed_at = map(int, sys.argv[3:])
checkpoint.parent.mkdir(exist_ok=True)
seen = []

def look(module, inputs):
    if isinstance(module, (torch.nn.Embedding, torch.nn.Linear)) and not inputs[0].requires_grad:
        seen.append(inputs[0][:, 0].tolist())
        if len(seen) == killed_at:
            tell()
            os._exit(0)

def save_now(save):
    if len(seen) == saved_at:
        save()

def tell():
    print("seen", json.dumps(seen), flush=True)

torch.nn.modules.module.register_module_forward_pre_hook(look)
torch.manual_seed(seed)
space = {"__name__": "example", "checkpoint": checkpoint, "seed": seed, "save_now": save_now}
exec(compile(code, "example", "exec"), space)
space["main"]()
tell()
"""


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("lightning", ["lightning", "pytorch_lightning"]),
        ("fabric", ["lightning", "lightning_fabric"]),
        ("accelerate", ["accelerate"]),
        ("transformers", ["transformers"]),
    ],
)
def test_example_that_is_killed_goes_on_exactly_with_another_seed(name, needed, tmp_path):
    if not any(map(importlib.util.find_spec, needed)):
        pytest.skip(f"needs {' or '.join(needed)}")
    code = (EXAMPLES / f"train_{name}.py").read_text()
    for old, new in [*COMMON, *CHANGES[name]]:
        assert old in code or (old, new) in COMMON
        code = code.replace(old, new)

    def seen(folder, *numbers):
        command = [sys.executable, "-P", "-c", PROGRAM, code, tmp_path / folder / "checkpoint"]
        ended = subprocess.run(
            list(map(str, [*command, *numbers])),
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        [found] = [line for line in ended.stdout.splitlines() if line.startswith("seen ")]
        return json.loads(found.removeprefix("seen "))

    whole = seen("whole", 1, 0, 0)
    assert seen("killed", 1, SAVED_AT, KILLED_AT) == whole[:KILLED_AT]
    assert seen("killed", 2, 0, 0) == whole[SAVED_AT:]
    assert set(Counter(chain.from_iterable(whole)).values()) == {2 * 2}  # uses, in two epochs


@pytest.mark.slow
def test_images_train_on_two_ranks_and_go_on(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in range(40):
        folder = tmp_path / "pictures" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (240 + number, 250), (90, 90, 90)).save(folder / f"{number}.png")
    code = "import sys, train_images as it\nif __name__ == '__main__':\n    "
    options = "epochs=int(sys.argv[1]), batch_size=16, workers=1"
    (tmp_path / "run.py").write_text(f"{code}it.main('pictures', {options})")
    command = [sys.executable, "-P", "-m", "torch.distributed.run", "--nproc-per-node=2", "run.py"]
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "CUDA_VISIBLE_DEVICES": ""}
    options = {"cwd": tmp_path, "env": environment, "text": True, "capture_output": True}

    def epochs(number):
        ended = subprocess.run([*command, number], timeout=200, **options)
        assert ended.returncode == 0, ended.stderr
        return [line.split(":")[0] for line in ended.stdout.splitlines()]

    assert epochs("3") == ["epoch 0"]
    assert epochs("9") == ["epoch 1", "epoch 2"]
