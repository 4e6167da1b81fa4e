import json
import os
import subprocess
import sys

import numpy as np
import pytest

from pyecho.tools import info
from pyecho.tools.cli import main

NO_CUDA = {
    "cuda_driver": None,
    "cuda_missing": "no CUDA driver was found",
    "cuda_devices": [],
    "cuda_copies": None,
}


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch):
    """Keep the driver of this process for the tests of CUDA."""
    monkeypatch.setattr(info, "collect_cuda", lambda: NO_CUDA)
    monkeypatch.setenv("PYECHO_CUDA_DRIVER", "none")


def test_json_holds_the_same_facts(capsys):
    assert main(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts == info.collect() | NO_CUDA
    assert facts["numpy"] == np.__version__
    assert facts["cores"] >= 1


def test_only_numpy_is_needed(tmp_path):
    code = (
        "import sys\n"
        "for name in ('torch', 'sklearn', 'PIL', 'matplotlib', 'tqdm'):\n"
        "    sys.modules[name] = None\n"
        "from pyecho.tools.cli import main\n"
        "sys.exit(main(['info']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_python_m_pyecho_is_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pyecho", "info", "--json"], cwd=tmp_path, capture_output=True
    )
    missing = {"cuda_missing": "CUDA is switched off by PYECHO_CUDA_DRIVER=none; unset it"}
    assert json.loads(done.stdout) == info.collect() | NO_CUDA | missing


@pytest.mark.parametrize(
    ("content", "mode"),
    [("always [madvise] never\n", "madvise"), ("[always] madvise never\n", "always"), ("", None)],
)
def test_mode_of_huge_pages_is_the_one_in_brackets(monkeypatch, tmp_path, content, mode):
    (tmp_path / "enabled").write_text(content)
    (tmp_path / "shmem_enabled").write_text("always [never]\n")
    monkeypatch.setattr(info, "_HUGE_PAGES", tmp_path)
    facts = info.collect()
    assert (facts["huge_pages"], facts["shared_huge_pages"]) == (mode, "never")


def test_the_way_of_copies_and_what_is_missing_for_a_better_one_are_told():
    lacking = {"/lib/libcudart.so.13": ["cudaMemcpyAsync"], "/lib/libcudart.so.12": []}
    copies = {"runtimes": lacking, "torch_functions": True, "native": False}
    there = {"cuda_missing": "", "cuda_devices": ["H200"], "cuda_copies": copies}
    text = info.as_text(info.collect() | NO_CUDA | there)
    assert "copies         by PyTorch\n" in text
    assert "libcudart.so.13, no cudaMemcpyAsync; /lib/libcudart.so.12, complete\n" in text


def test_a_torch_that_lacks_a_library_is_none(monkeypatch):
    class Broken:
        def __getattr__(self, name):
            raise OSError("libcublas.so.13: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "pyecho.device", Broken())
    assert info._way_of_copies() is None


def test_machine_is_what_this_process_may_have():
    facts = info.collect()
    text = info.as_text(facts | NO_CUDA)
    assert 1 <= facts["cores"] <= os.cpu_count()
    assert f"{facts['memory_bytes'] / 2**30:,.1f} GiB" in text
    assert len(facts["memory_nodes"]) == len(set(facts["memory_nodes"]))
