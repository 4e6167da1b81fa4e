import pytest

pytest.importorskip("PIL")

from pathlib import Path

from PIL import Image

from pyecho.demo.images import decode_all, read_folder, write_digits
from pyecho.tools.arguments import CommandError


def test_read_folder_puts_every_image_into_one_part_with_the_label_of_its_folder(image_folder):
    images = read_folder(image_folder)
    both = [*images.train, *images.test]
    assert list(images.classes) == ["circle", "square"]
    assert sorted(image.path for image in both) == sorted(image_folder.rglob("*.png"))
    assert all(images.classes[image.label] == image.path.parent.name for image in both)
    labels = [image.label for image in images.test]
    assert (labels.count(0), labels.count(1)) == (44, 35), "every class keeps its share of the test"
    assert read_folder(image_folder) == images, "the split is the same on every call"


def test_hidden_and_other_files_are_passed_over(image_folder):
    before = read_folder(image_folder)
    (image_folder / "readme.txt").write_text("not a class")
    (image_folder / ".cache").mkdir()
    (image_folder / "empty class").mkdir()
    (image_folder / "circle" / "notes.txt").write_text("not an image")
    (image_folder / "circle" / "._000.png").write_bytes(b"not an image either")
    assert read_folder(image_folder) == before


def test_images_are_all_coloured_and_small_if_one_is_large_and_coloured(image_folder):
    assert read_folder(image_folder).shape == (1, 16, 16)
    Image.new("RGB", (300, 200), "red").save(image_folder / "circle" / "photo.png")
    images = read_folder(image_folder)
    assert images.shape == (3, 32, 32)
    decoded = decode_all([*images.train, *images.test], images.shape)
    assert sorted({pixels.shape for pixels in decoded}) == [(8, 8, 3), (85, 128, 3)]
    (photo,) = (pixels for pixels in decoded if pixels.shape == (85, 128, 3))
    assert (photo == [255, 0, 0]).all()
    assert all(pixels.nbytes <= images.field.max_bytes for pixels in decoded)


def keep(folder, count):
    for path in sorted(folder.iterdir())[count:]:
        path.unlink()


def break_one(folder):
    (folder / "000.png").write_bytes(b"not a PNG file")


@pytest.mark.parametrize(
    ("folder", "change", "problem"),
    [
        ("missing", None, "missing is not a folder: check the path"),
        ("circle", None, "found none but 200 images outside any: put the"),
        (".", lambda circle: keep(circle, 0), "two class sub-folders.*only 'square': put"),
        (".", lambda circle: keep(circle, 1), "'circle' needs at least two images, found 1"),
        (".", lambda circle: keep(circle, 2), "256 .* training, but 126 .*until .*about 329"),
        (".", break_one, r"000\.png cannot be decoded \(its content is of no.*: replace"),
    ],
)
def test_folder_that_does_not_work_is_reported(image_folder, folder, change, problem):
    if change is not None:
        change(image_folder / "circle")
    with pytest.raises(CommandError, match=problem):
        read_folder(image_folder / folder)


def test_folder_that_cannot_be_listed_is_reported(image_folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(CommandError, match=r"cannot \(Permission denied\): change its permissions"):
        read_folder(image_folder)


def test_truncated_image_is_named_when_it_is_decoded(image_folder):
    images = read_folder(image_folder)
    path = images.test[0].path
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(
        CommandError, match=rf"{path.name} cannot be decoded \(.*\): replace the file"
    ):
        decode_all(images.test, images.shape)


def test_digits_are_written_as_a_folder_that_can_be_read(tmp_path):
    pytest.importorskip("sklearn")
    write_digits(tmp_path)
    images = read_folder(tmp_path)
    assert list(images.classes) == [str(digit) for digit in range(10)]
    assert len(images.train) + len(images.test) == 1797
    assert images.shape == (1, 16, 16)
