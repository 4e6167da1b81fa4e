import numpy as np
import pytest


@pytest.fixture
def image_folder(tmp_path):
    """Two classes of small grey images that all differ, enough of them to train on."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, count in (("circle", 200), ("square", 160)):
        folder = tmp_path / "images" / name
        folder.mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            image.fromarray(pixels).save(folder / f"{index:03d}.png")
    return tmp_path / "images"
