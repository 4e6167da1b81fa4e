"""Parts of benchmarks/gpu.py that need no GPU: sources, networks, arguments."""

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


def test_source_decodes_what_was_encoded():
    from gpu import images

    source = images.DecodedBatches(3, workers=2, work=2)
    try:
        batches = iter(source)
        pixels, labels = next(batches)
        assert pixels.shape == (3, 3, images.CROP, images.CROP)
        assert labels.tolist() == [0, 1, 2]
        assert next(batches)[1].tolist() == [3, 4, 5]
        assert len(source.seconds_of_batches) == 2
        edge = (images.SIDE - images.CROP) // 2
        original = images.synthetic_images(1)[0][edge : edge + 8, edge : edge + 8]
        decoded = pixels[0, :, :8, :8].transpose(1, 2, 0)
        assert abs(original.astype(int) - decoded).mean() < 12  # JPEG loses some
    finally:
        source.close()


@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.15, 0.4, 3.0])
def test_source_is_made_as_slow_as_wanted(seconds):
    from gpu.images import speed_for

    workers, work = speed_for(seconds, 0.24, most_workers=8)
    assert 1 <= workers <= 8
    if seconds < 8 * 0.24:
        assert seconds * work / workers == pytest.approx(0.24, rel=0.2)


def test_arguments():
    from gpu.command import MEASUREMENTS, parsed_arguments

    assert parsed_arguments([]).only == MEASUREMENTS
    assert parsed_arguments(["--only", "overlap, link"]).only == ("link", "overlap")
    with pytest.raises(SystemExit):
        parsed_arguments(["--only", "linc"])


def test_gpu_benchmark_without_a_gpu_says_so_and_exits_with_2(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    process = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert process.returncode == 2
    assert "Nothing can be measured here: PyTorch" in process.stderr
    assert process.stdout == ""
    assert not list(tmp_path.iterdir())
