import pytest

pytest.importorskip("PIL")

from pathlib import Path

import numpy as np
from PIL import Image

from pyecho.demo.errors import DemoError
from pyecho.demo.images import decode, decode_all, read_folder, write_digits


def test_every_image_is_in_one_part_and_labels_follow_the_folder_names(image_folder):
    images = read_folder(image_folder)
    assert list(images.classes) == ["circle", "square"]
    paths = [image.path for image in [*images.train, *images.test]]
    assert sorted(paths) == sorted(image_folder.rglob("*.png"))
    for image in [*images.train, *images.test]:
        assert images.classes[image.label] == image.path.parent.name


def test_every_class_keeps_its_share_of_the_test(image_folder):
    images = read_folder(image_folder)
    assert [image.label for image in images.test].count(0) == 44
    assert [image.label for image in images.test].count(1) == 35


def test_the_split_is_the_same_on_every_call(image_folder):
    assert read_folder(image_folder) == read_folder(image_folder)


def test_hidden_and_other_files_are_passed_over(image_folder):
    before = read_folder(image_folder)
    (image_folder / "readme.txt").write_text("not a class")
    (image_folder / ".cache").mkdir()
    (image_folder / "empty class").mkdir()
    (image_folder / "circle" / "notes.txt").write_text("not an image")
    (image_folder / "circle" / "._000.png").write_bytes(b"not an image either")
    assert read_folder(image_folder) == before


def test_small_grey_images_stay_small_and_grey(image_folder):
    assert read_folder(image_folder).shape == (1, 16, 16)


def test_one_large_colour_image_makes_all_larger_and_coloured(image_folder):
    Image.new("RGB", (300, 200)).save(image_folder / "circle" / "photo.jpg")
    assert read_folder(image_folder).shape == (3, 32, 32)


def test_decoding_brings_any_mode_to_the_shape(tmp_path):
    Image.new("RGBA", (40, 20), (255, 0, 0, 255)).save(tmp_path / "red.png")
    colour = decode(tmp_path / "red.png", (3, 16, 16))
    assert colour.shape == (3, 16, 16)
    assert colour.dtype == np.uint8
    assert colour[:, 8, 8].tolist() == [255, 0, 0]
    assert decode(tmp_path / "red.png", (1, 16, 16)).shape == (1, 16, 16)


def test_decoding_all_keeps_the_order(image_folder):
    images = read_folder(image_folder)
    pixels, labels = decode_all(images.test, (1, 8, 8))
    assert labels.tolist() == [image.label for image in images.test]
    with Image.open(images.test[3].path) as expected:
        assert np.array_equal(pixels[3, 0], np.asarray(expected))


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(
        DemoError, match=r"--images needs .*missing is not a folder: check the path"
    ):
        read_folder(tmp_path / "missing")


def test_a_single_class_is_reported(image_folder):
    for path in (image_folder / "square").iterdir():
        path.unlink()
    with pytest.raises(DemoError, match=r"--images .*two class sub-folders.*only 'circle': put"):
        read_folder(image_folder)


def test_a_folder_without_classes_is_reported(tmp_path):
    with pytest.raises(DemoError, match=r"two class sub-folders with images, found none: put the"):
        read_folder(tmp_path)


def test_a_folder_of_loose_images_is_reported(image_folder):
    flat = image_folder / "circle"
    with pytest.raises(DemoError, match=r"found none but 200 images outside any: put the"):
        read_folder(flat)


def test_a_folder_that_cannot_be_listed_is_reported(image_folder, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(DemoError, match=r"cannot \(Permission denied\): change its permissions"):
        read_folder(image_folder)


def test_a_class_of_one_image_is_reported(image_folder):
    (image_folder / "zigzag").mkdir()
    Image.new("L", (8, 8)).save(image_folder / "zigzag" / "only.png")
    with pytest.raises(
        DemoError, match="'zigzag' needs at least two images, found 1: add images to"
    ):
        read_folder(image_folder)


def test_too_few_images_are_reported(image_folder):
    for path in sorted((image_folder / "circle").iterdir())[2:]:
        path.unlink()
    with pytest.raises(
        DemoError,
        match=r"256 images for training, but 126 are left.*add images until there are about 329",
    ):
        read_folder(image_folder)


def test_a_file_that_is_no_image_is_named(image_folder):
    (image_folder / "circle" / "broken.png").write_bytes(b"not a PNG file")
    with pytest.raises(
        DemoError, match=r"broken\.png cannot be decoded \(its content is of no.*: replace"
    ):
        read_folder(image_folder)


def test_a_truncated_image_is_named_when_it_is_decoded(image_folder):
    images = read_folder(image_folder)
    path = images.test[0].path
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DemoError, match=rf"{path.name} cannot be decoded \(.*\): replace the file"):
        decode_all(images.test, images.shape)


def test_the_digits_are_written_as_a_folder_that_can_be_read(tmp_path):
    pytest.importorskip("sklearn")
    write_digits(tmp_path)
    images = read_folder(tmp_path)
    assert list(images.classes) == [str(digit) for digit in range(10)]
    assert len(images.train) + len(images.test) == 1797
    assert images.shape == (1, 16, 16)
