from contextlib import closing

import pytest

pytest.importorskip("PIL")

from pyecho.demo.images import decode, read_folder
from pyecho.demo.server_process import ServerProcess
from pyecho.demo.source import RemoteImages
from pyecho.tools.arguments import CommandError


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


def test_passes_deliver_every_image_once_in_an_order_of_their_own(images, open_source):
    source = open_source()
    expected = [(decode(i.path, images.shape).tobytes(), i.label) for i in images.train]
    assert len(source) == len(expected)
    first, second = contents(source), contents(source)
    assert sorted(first) == sorted(second) == sorted(expected)
    assert first != second


def test_order_depends_on_the_seed_only(open_source):
    few = open_source(seed=3, threads=1, look_ahead=1)
    many = open_source(seed=3, threads=6, look_ahead=500)
    first = contents(few)
    assert contents(many) == first
    next(iter(many))  # a pass that is abandoned counts
    contents(few)
    assert contents(few) == contents(many)
    assert contents(open_source(seed=4)) != first


def test_server_that_dies_in_the_middle_of_a_pass_is_reported(open_source, server):
    examples = iter(open_source(look_ahead=4))
    next(examples)
    server._process.kill()
    with pytest.raises(CommandError, match="image server stopped answering"):
        list(examples)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.unlink(), "500"),
        (
            lambda path: path.write_bytes(b"not a PNG file"),
            r"\.png cannot be decoded \(.*: replace",
        ),
    ],
    ids=["vanished", "no image"],
)
def test_image_that_cannot_be_had_is_reported(images, open_source, change, problem):
    for image in images.train:
        change(image.path)
    with pytest.raises(CommandError, match=problem):
        list(open_source())
