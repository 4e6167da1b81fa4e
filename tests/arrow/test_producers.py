"""Arrow producers: everything is released once, and what breaks the rules is an error."""

import errno
import gc
import struct as packed
import threading
from collections import deque

import numpy as np
import pyarrow as pa
import pytest
from arrow_producer import Producer, Type, Values, struct
from drivers import FEEDER

import pyecho

pytestmark = pytest.mark.slow

INTS = Type("+s", "", (Type("i", "x"),))
TEXTS = Type("+s", "", (Type("u", "t"),))
VIEWS = Type("+s", "", (Type("vu", "t"),))
CODES = Type("+s", "", (Type("c", "d", dictionary=Type("u")),))


def ints(*numbers, **changes):
    return Values(len(numbers), (None, packed.pack(f"{len(numbers)}i", *numbers)), **changes)


def some(batches=3, **changes):
    """A producer of batches of two numbers."""
    made = [struct(ints(2 * batch, 2 * batch + 1)) for batch in range(batches)]
    return Producer(INTS, made, **changes)


def numbers(batches):
    return np.concatenate([batch["x"] for batch in batches]).tolist()


# ---------------------------------------------------------------- releases


@pytest.mark.parametrize("options", [{"threads": 0}, FEEDER])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_streams_schemas_and_arrays_are_released_once(options, batch_size):
    producer = some()
    loader = pyecho.EchoLoader(producer, 2, batch_size=batch_size, shuffle_buffer=0, **options)
    for epoch in range(2):
        assert numbers(list(loader))[::2] == list(range(6)) or batch_size is None
        assert producer.released["stream"] == epoch + 1, "at its end"
    del loader
    gc.collect()
    assert producer.all_is_released
    assert producer.streams == 2


@pytest.mark.parametrize("options", [{"threads": 0}, FEEDER])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_stream_that_is_left_half_way_is_released(options, batch_size):
    producer = some(batches=50)
    loader = pyecho.EchoLoader(producer, batch_size=batch_size, **options)
    for _ in loader:
        break
    loader.close()
    del loader, _
    gc.collect()
    assert producer.all_is_released


@pytest.mark.parametrize("options", [{"threads": 0}, FEEDER])
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("end", ["iterator dropped", "loader closed", "loader dropped", "error"])
def test_stream_ends_with_its_pass_although_iterator_batch_or_loader_are_held(
    end, options, batch_size
):
    odd = [Values(2, (None,), (ints(1),))] if end == "error" else []
    producer = Producer(INTS, [some().batches[0]] * 50 + odd)
    loader = pyecho.EchoLoader(producer, 1, batch_size=batch_size, **options)
    batches = iter(loader)
    held = [next(batches), loader, batches]
    if end == "iterator dropped":
        del held[2], batches
    elif end == "loader closed":
        loader.close()
        assert producer.released["stream"] == 1, "at once"
    elif end == "loader dropped":
        del held[1:], loader, batches
    else:
        with pytest.raises(pyecho.EchoError, match="does not fit its schema"):
            deque(batches, maxlen=0)  # beside the held batch, a loop would keep one too many
    assert producer.stream_is_released.wait(60)


def test_views_outlive_their_producer():
    [item] = pyecho.EchoLoader(some(batches=1), 1)
    gc.collect()
    assert item["x"].tolist() == [0, 1]
    del item  # which calls it back


def test_views_keep_their_batch_and_release_it_in_any_thread():
    producer = some()
    views = [item["x"] for item in pyecho.EchoLoader(producer, 1)]
    gc.collect()
    assert producer.released["array"] == 0
    assert np.concatenate(views).tolist() == list(range(6)), "not released yet"
    thread = threading.Thread(target=views.clear)
    thread.start()
    thread.join()
    assert producer.all_is_released


def test_array_that_is_refused_is_released():
    producer = Producer(INTS, [Values(2, (None,), (ints(1),))])
    with pytest.raises(pyecho.EchoError):
        list(pyecho.EchoLoader(producer, batch_size=2))
    gc.collect()
    assert producer.all_is_released


# ---------------------------------------------------------------- errors of the producer


@pytest.mark.parametrize("options", [{"threads": 0}, FEEDER])
def test_error_arrives_with_its_message_after_what_came_before(options):
    producer = some(code=errno.EIO)
    batches = iter(pyecho.EchoLoader(producer, 2, batch_size=4, shuffle_buffer=0, **options))
    assert numbers([next(batches) for _ in range(3)])[::2] == list(range(6))
    with pytest.raises(OSError, match="the line is down") as raised:
        next(batches)
    assert raised.value.errno == errno.EIO
    assert producer.released["stream"] == 1


def test_error_without_a_message():
    with pytest.raises(OSError, match="gave no reason"):
        list(pyecho.EchoLoader(some(code=errno.EINVAL, message=None), 1, batch_size=2))


def test_error_whose_message_is_not_utf_8_is_shown_escaped():
    producer = some(code=errno.EIO, message=b"the line is \xff\xfe")
    with pytest.raises(OSError, match=r"the line is \\xff\\xfe") as raised:
        list(pyecho.EchoLoader(producer, 1, batch_size=2))
    assert raised.value.errno == errno.EIO


def test_error_instead_of_a_schema():
    producer = some(schema_code=errno.ENOENT)
    with pytest.raises(FileNotFoundError, match="the line is down"):
        list(pyecho.EchoLoader(producer, batch_size=2))
    assert producer.released == {"stream": 1, "schema": 0, "array": 0}


def test_schema_or_stream_that_was_released_before():
    with pytest.raises(pyecho.EchoError, match="a released schema"):
        list(pyecho.EchoLoader(some(schema_released=True), batch_size=2))
    with pytest.raises(pyecho.EchoError, match=r"was taken before; .* pass a table"):
        list(pyecho.EchoLoader(some(stream_released=True), batch_size=2))


def test_arrow_c_stream_must_return_a_capsule():
    class Odd:
        def __arrow_c_stream__(self, requested_schema=None):
            return "stream"

    with pytest.raises(TypeError, match=r"must return a PyCapsule .* got 'stream'"):
        list(pyecho.EchoLoader(Odd(), batch_size=2))


def test_array_that_was_taken_before_and_what_is_none():
    class Once:
        exported = pa.array([1, 2]).__arrow_c_array__()

        def __arrow_c_array__(self, requested_schema=None):
            return self.exported

    source = Once()
    assert [batch.tolist() for batch in pyecho.EchoLoader(source, 1)] == [[1, 2]]
    with pytest.raises(pyecho.EchoError, match=r"was taken before; .* pass a table"):
        list(pyecho.EchoLoader(source, 1))
    source.exported = (1, 2)
    with pytest.raises(TypeError, match=r"__arrow_c_array__\(\) must return a PyCapsule .* got 1"):
        list(pyecho.EchoLoader(source, 1))


# ---------------------------------------------------------------- what does not fit its schema


@pytest.mark.parametrize(
    ("type_", "batch"),
    [
        (INTS, Values(2, (None,), ())),
        (INTS, Values(2, (None,), (ints(1),))),
        (INTS, Values(-1, (None,), (ints(1),))),
        (INTS, Values(1, (None,), (ints(1),), offset=-1)),
        (INTS, Values(1, (None,), (ints(1),), offset=1 << 62)),
        (INTS, Values(1, (None,), (ints(1),), offset=1)),
        (INTS, Values(1, (None,), (Values(1, (None, None)),))),
        (INTS, Values(1, (None,), (Values(1, (None,)),))),
        (INTS, Values(1, (None, None), (ints(1),))),
        (INTS, struct(ints(1, n_buffers=7))),
        (Type("+s", "", (Type(f"w:{1 << 46}", "x"),)), struct(Values(1 << 20, (None, b"x")))),
        (Type("+s", "", (Type("n", "x"),)), struct(Values(1, (), n_buffers=7))),
        (Type("+s", "", (Type("n", "x"),)), struct(Values(1, (), n_buffers=-1))),
        (INTS, struct(ints(1, n_children=1))),
        (Type("+w:3"), Values(1, (None,), (ints(1, 2),))),
        (Type("+w:3"), Values(1 << 40, (None,), (ints(1, 2),))),
        (CODES, struct(Values(1, (None, b"\0")))),
        (
            CODES,
            struct(
                Values(
                    1,
                    (None, b"\1"),
                    dictionary=Values(1, (None, packed.pack("2i", 0, 1), b"a")),
                )
            ),
        ),
        (TEXTS, struct(Values(1, (None, packed.pack("2i", 5, 3), b"abcdef")))),
        (TEXTS, struct(Values(1, (None, packed.pack("2i", -1, 3), b"abcdef")))),
        (TEXTS, struct(Values(1, (None, packed.pack("2i", 0, 3), None)))),
        (VIEWS, struct(Values(1, (None, packed.pack("4i", 20, 0, 0, 0), packed.pack("0q"))))),
        (
            VIEWS,
            struct(
                Values(1, (None, packed.pack("4i", 20, 0, 0, 9), b"x" * 25, packed.pack("q", 25)))
            ),
        ),
        (VIEWS, struct(Values(1, (None, packed.pack("4i", -1, 0, 0, 0), packed.pack("0q"))))),
    ],
)
def test_arrays_that_would_be_read_out_of_bounds_are_an_error(type_, batch):
    if type_.format == "+w:3":
        type_ = Type("+s", "", (Type("+w:3", "x", (Type("i"),)),))
        batch = struct(batch)
    producer = Producer(type_, [batch])
    with pytest.raises(pyecho.EchoError, match="Arrow stream has sent"):
        list(pyecho.EchoLoader(producer, 1, batch_size=2))
    gc.collect()
    assert producer.all_is_released


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        (Type(None, "x"), "column 'x' has the Arrow format '', which pyecho does not know"),
        (Type("Q?", "x"), "format 'Q\\?', which pyecho does not know; cast it"),
        (Type("+w:", "x", (Type("i"),)), "size of 0 to 2.47 in its Arrow format, got '\\+w:'"),
        (Type("+w:-1", "x", (Type("i"),)), "needs a size of 0 to"),
        (Type(f"w:{1 << 70}", "x"), "needs a size of 0 to"),
        (Type("+w:2", "x"), "lacks a child"),
        (Type("f", "x", dictionary=Type("u")), "indices of the Arrow format 'f'"),
        (Type("c", "x", dictionary=Type("+s")), "nested values; decode it"),
    ],
)
def test_schemas_that_cannot_be_read_name_their_column(type_, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        list(pyecho.EchoLoader(Producer(Type("+s", "", (type_,))), batch_size=2))


def nested(levels, format_="+s", **changes):
    type_ = Type("i", "x")
    for _ in range(levels - 2):
        type_ = Type(format_, "x", (type_,))
    return Type("+s", "", (type_,), **changes)


def test_schemas_may_have_64_levels():
    for format_ in ("+s", "+w:1"):
        with pytest.warns(RuntimeWarning, match="yielded nothing"):
            assert list(pyecho.EchoLoader(Producer(nested(64, format_)), batch_size=2)) == []
        producer = Producer(nested(65, format_))
        with pytest.raises(pyecho.ConfigError, match="nested more than 64 levels deep"):
            list(pyecho.EchoLoader(producer, batch_size=2))
        gc.collect()
        assert producer.all_is_released


def test_dictionaries_of_dictionaries_are_not_followed_without_end():
    type_ = Type("u")
    for _ in range(100):
        type_ = Type("i", "x", dictionary=type_)
    with pytest.raises(pyecho.ConfigError, match="nested more than 64 levels deep"):
        list(pyecho.EchoLoader(Producer(type_), batch_size=2))


@pytest.mark.parametrize("metadata", [(-1,), (1, -5), (1, 0, -5)])
def test_metadata_of_a_negative_size_are_refused(metadata):
    type_ = Type("i", metadata=packed.pack(f"{len(metadata)}i", *metadata))
    with pytest.raises(pyecho.ConfigError, match="has damaged metadata"):
        list(pyecho.EchoLoader(Producer(type_), batch_size=2))


def test_name_that_is_not_utf_8_is_shown_escaped():
    producer = Producer(Type("+s", "", (Type("i", "x\udcff"),)), [struct(ints(1, 2))])
    [item] = pyecho.EchoLoader(producer, 1)
    assert item["x\\xff"].tolist() == [1, 2]
    producer = Producer(Type("+s", "", (Type("Q\udcff", "x\udcff"),)))
    with pytest.raises(pyecho.ConfigError, match=r"column 'x\\xff' has the Arrow format 'Q\\xff'"):
        list(pyecho.EchoLoader(producer, 1))


@pytest.mark.parametrize("buffers", [(), (None,), (b"\0",)])
def test_column_of_nulls_may_have_a_buffer(buffers):
    producer = Producer(
        Type("+s", "", (Type("n", "x"),)), [struct(Values(2, buffers, null_count=2))]
    )
    assert list(pyecho.EchoLoader(producer, batch_size=2, factor=1)) == [{"x": [None, None]}]


def test_text_that_is_no_utf_8():
    producer = Producer(TEXTS, [struct(Values(1, (None, packed.pack("2i", 0, 2), b"\xff\xff")))])
    with pytest.raises(UnicodeDecodeError):
        list(pyecho.EchoLoader(producer, batch_size=2))


def test_names_may_be_missing_and_empty_batches_are_passed_over():
    type_ = Type("+s", None, (Type("i", None),))
    producer = Producer(type_, [struct(ints()), struct(ints(1, 2)), struct(ints())])
    items = list(pyecho.EchoLoader(producer, 1))
    assert [item[""].tolist() for item in items] == [[1, 2]]
