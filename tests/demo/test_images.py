"""Images are read, split and decoded; folders and files that do not work are named."""

import pytest

pytest.importorskip("PIL")

from PIL import Image

from pyecho.demo.images import decode, read_folder, write_digits
from pyecho.tools.arguments import CommandError


def test_read_folder_puts_every_image_into_one_part_with_the_label_of_its_folder(image_folder):
    (image_folder / "readme.txt").write_text("not a class")
    (image_folder / ".cache").mkdir()
    (image_folder / "empty class").mkdir()
    expected = sorted(image_folder.rglob("*.png"))
    (image_folder / "circle" / "notes.txt").write_text("not an image")
    (image_folder / "circle" / "._000.png").write_bytes(b"not an image either")
    images = read_folder(image_folder)
    both = [*images.train, *images.test]
    assert list(images.classes) == ["circle", "square"]
    assert sorted(image.path for image in both) == expected
    assert all(images.classes[image.label] == image.path.parent.name for image in both)
    labels = [image.label for image in images.test]
    assert (labels.count(0), labels.count(1)) == (44, 35), "every class keeps its share of the test"
    assert read_folder(image_folder) == images, "the split is the same on every call"


def test_images_are_all_coloured_and_small_if_one_is_large_and_coloured(image_folder):
    assert read_folder(image_folder).shape == (1, 16, 16)
    Image.new("RGB", (300, 200), "red").save(image_folder / "circle" / "photo.png")
    images = read_folder(image_folder)
    assert images.shape == (3, 32, 32)
    decoded = [decode(image.path, images.shape) for image in [*images.train, *images.test]]
    assert sorted({pixels.shape for pixels in decoded}) == [(8, 8, 3), (85, 128, 3)]
    (photo,) = (pixels for pixels in decoded if pixels.shape == (85, 128, 3))
    assert (photo == [255, 0, 0]).all()
    assert all(pixels.nbytes <= images.field.max_bytes for pixels in decoded)


def keep(folder, count):
    for path in sorted(folder.iterdir())[count:]:
        path.unlink()


def replace_one(folder):
    (folder / "000.png").write_bytes(b"not a PNG file")


def cut_one(folder):
    path = folder / "000.png"
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("folder", "change", "problem"),
    [
        ("missing", None, "missing cannot be listed .*No such file.*: check the path"),
        ("circle", None, "two classes or more, with 328 .* but has 0 with 0 images: add"),
        (".", lambda circle: keep(circle, 0), "but has 1 with 160 images: add"),
        (".", lambda circle: keep(circle, 2), "but has 2 with 162 images: add"),
        (".", replace_one, r"000\.png cannot be decoded \(its content is of no.*: replace"),
        (".", cut_one, r"000\.png cannot be decoded \(.*\): replace the file"),
    ],
)
def test_folder_that_does_not_work_is_reported(image_folder, folder, change, problem):
    if change is not None:
        change(image_folder / "circle")
    with pytest.raises(CommandError, match=problem):
        images = read_folder(image_folder / folder)
        for image in (*images.train, *images.test):
            decode(image.path, images.shape)


def test_digits_are_written_as_a_folder_that_can_be_read(tmp_path):
    pytest.importorskip("sklearn")
    write_digits(tmp_path)
    images = read_folder(tmp_path)
    assert list(images.classes) == [str(digit) for digit in range(10)]
    assert len(images.train) + len(images.test) == 1797
    assert images.shape == (1, 16, 16)
