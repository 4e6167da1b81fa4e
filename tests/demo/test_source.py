from contextlib import closing

import pytest

pytest.importorskip("PIL")

import numpy as np

from pyecho.demo.errors import DemoError
from pyecho.demo.images import decode, read_folder
from pyecho.demo.server_process import ServerProcess
from pyecho.demo.source import RemoteImages


@pytest.fixture
def images(image_folder):
    return read_folder(image_folder)


@pytest.fixture
def server(image_folder):
    with closing(ServerProcess(image_folder)) as server:
        yield server


@pytest.fixture
def open_source(images, server):
    sources = []

    def open_source(seed=0, **options):
        source = RemoteImages(
            server.port, images.root, images.train, images.shape, seed=seed, **options
        )
        sources.append(source)
        return source

    yield open_source
    for source in sources:
        source.close()


def contents(examples):
    return [(example["image"].tobytes(), example["label"]) for example in examples]


def test_a_pass_delivers_every_image_once(images, open_source):
    source = open_source()
    expected = [(decode(i.path, images.shape).tobytes(), i.label) for i in images.train]
    assert len(source) == len(expected)
    assert sorted(contents(source)) == sorted(expected)


def test_every_pass_has_an_order_of_its_own(open_source):
    source = open_source()
    first, second = contents(source), contents(source)
    assert first != second
    assert sorted(first) == sorted(second)


def test_the_order_depends_on_the_seed_only(open_source):
    few = open_source(seed=3, threads=1, look_ahead=1)
    many = open_source(seed=3, threads=6, look_ahead=500)
    assert contents(few) == contents(many)
    assert contents(few) == contents(many)
    assert contents(open_source(seed=4)) != contents(open_source(seed=3))


def test_an_abandoned_pass_does_not_disturb_the_next_one(open_source):
    disturbed, straight = open_source(), open_source()
    examples = iter(disturbed)
    for _ in range(5):
        next(examples)
    contents(straight)
    assert contents(disturbed) == contents(straight)


def test_images_are_uint8_with_channels_first(open_source):
    example = next(iter(open_source()))
    assert example["image"].shape == (1, 16, 16)
    assert example["image"].dtype == np.uint8


def test_a_server_that_dies_in_the_middle_of_a_pass_is_reported(open_source, server):
    source = open_source(look_ahead=4)
    examples = iter(source)
    next(examples)
    server._process.kill()
    with pytest.raises(DemoError, match="image server stopped answering"):
        list(examples)


def test_an_image_that_vanished_is_reported(images, open_source):
    for image in images.train:
        image.path.unlink()
    with pytest.raises(DemoError, match="500"):
        list(open_source())


def test_an_image_that_cannot_be_decoded_is_named(images, open_source):
    for image in images.train:
        image.path.write_bytes(b"not a PNG file")
    with pytest.raises(DemoError, match=r"\.png cannot be decoded \(its content .*: replace"):
        list(open_source())


def test_closing_in_the_middle_of_a_pass_leaves_no_thread(open_source):
    import threading

    before = threading.active_count()
    source = open_source()
    next(iter(source))
    assert threading.active_count() > before
    source.close()
    assert threading.active_count() == before
