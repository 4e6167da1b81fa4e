"""A producer of Arrow streams in Python, which counts what is released and may break every rule."""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

POINTER = ctypes.c_void_p
NAME = b"arrow_array_stream"

# Buffers and callbacks must outlive the arrays that were sent, and views of these may outlive their
# producer: freed with it, a callback would crash the thread that drops the last view. So they live
# as long as the process.
KEPT = []


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


class Stream(ctypes.Structure):
    pass


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
RELEASE_STREAM = ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))
GET_SCHEMA = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))
GET_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))
GET_LAST_ERROR = ctypes.CFUNCTYPE(POINTER, ctypes.POINTER(Stream))

Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", RELEASE_SCHEMA),
    ("private_data", POINTER),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(POINTER)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", RELEASE_ARRAY),
    ("private_data", POINTER),
]
Stream._fields_ = [
    ("get_schema", GET_SCHEMA),
    ("get_next", GET_NEXT),
    ("get_last_error", GET_LAST_ERROR),
    ("release", RELEASE_STREAM),
    ("private_data", POINTER),
]


@dataclass
class Type:
    format: str | None
    name: str | None = ""
    children: tuple = ()
    dictionary: "Type | None" = None
    metadata: bytes | None = None


@dataclass
class Values:
    """An array; buffers are bytes or None."""

    length: int
    buffers: tuple = (None, None)
    children: tuple = ()
    dictionary: "Values | None" = None
    offset: int = 0
    null_count: int = 0
    n_buffers: int | None = None
    n_children: int | None = None


def struct(*columns):
    """A record batch of columns of the same length."""
    return Values(columns[0].length if columns else 0, (None,), columns)


@dataclass
class Producer:
    """A source. Each stream yields `batches`, then fails with `code` if there is one."""

    type: Type
    batches: list = field(default_factory=list)
    code: int = 0
    message: bytes | None = b"the line is down"
    schema_code: int = 0
    schema_released: bool = False
    before_next: Callable[[], None] = lambda: None
    stream_released: bool = False
    streams: int = 0
    sent: int = 0  # arrays
    released: dict = field(default_factory=lambda: {"stream": 0, "schema": 0, "array": 0})
    stream_is_released: threading.Event = field(default_factory=threading.Event)

    def __arrow_c_stream__(self, requested_schema=None):
        self.streams += 1
        left = list(self.batches)
        message = ctypes.create_string_buffer(self.message) if self.message is not None else None

        def get_schema(_, schema):
            if self.schema_code == 0:
                self._fill_schema(schema.contents, self.type)
            if self.schema_released:
                schema.contents.release = RELEASE_SCHEMA()
            return self.schema_code

        def get_next(_, array):
            self.before_next()
            if not left:
                array.contents.release = RELEASE_ARRAY()
                return self.code
            self.sent += 1
            self._fill_array(array.contents, left.pop(0))
            return 0

        def release(stream):
            self._released("stream", stream.contents, RELEASE_STREAM)
            self.stream_is_released.set()

        stream = Stream(
            GET_SCHEMA(get_schema),
            GET_NEXT(get_next),
            GET_LAST_ERROR(lambda _: message and ctypes.addressof(message)),
            RELEASE_STREAM() if self.stream_released else RELEASE_STREAM(release),
        )
        KEPT.extend([stream, message])
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [POINTER, ctypes.c_char_p, POINTER]
        return new(ctypes.addressof(stream), NAME, None)

    @property
    def all_is_released(self):
        """Return True if all that was sent was released exactly once."""
        done = {"stream": self.streams, "schema": self.streams, "array": self.sent}
        return self.released == done

    def _released(self, kind, struct, function):
        assert struct.release, "released twice"
        self.released[kind] += 1
        struct.release = function()

    def _pointers(self, kind, made):
        kept = (ctypes.POINTER(kind) * len(made))(*map(ctypes.pointer, made))
        KEPT.extend([kept, *made])
        return ctypes.cast(kept, ctypes.POINTER(ctypes.POINTER(kind)))

    def _fill_schema(self, schema, type_, root=True):
        children = [self._made(Schema, self._fill_schema, child) for child in type_.children]
        names = (type_.format, type_.name)
        texts = [None if text is None else text.encode(errors="surrogateescape") for text in names]
        KEPT.extend(texts)
        schema.metadata = type_.metadata
        schema.format, schema.name = texts
        schema.n_children = len(children)
        schema.children = self._pointers(Schema, children)
        if type_.dictionary is not None:
            made = self._made(Schema, self._fill_schema, type_.dictionary)
            schema.dictionary = ctypes.pointer(made)
        if root:
            release = RELEASE_SCHEMA(
                lambda schema: self._released("schema", schema.contents, RELEASE_SCHEMA)
            )
            KEPT.append(release)
            schema.release = release

    def _fill_array(self, array, values, root=True):
        children = [self._made(Array, self._fill_array, child) for child in values.children]
        buffers = [
            None if each is None else ctypes.create_string_buffer(each, max(1, len(each)))
            for each in values.buffers
        ]
        addresses = [None if each is None else ctypes.addressof(each) for each in buffers]
        table = (POINTER * max(1, len(addresses)))(*addresses)
        KEPT.extend([*buffers, table])
        array.length, array.offset = values.length, values.offset
        array.null_count = values.null_count
        array.n_buffers = len(buffers) if values.n_buffers is None else values.n_buffers
        array.n_children = len(children) if values.n_children is None else values.n_children
        array.buffers = ctypes.cast(table, ctypes.POINTER(POINTER))
        array.children = self._pointers(Array, children)
        if values.dictionary is not None:
            made = self._made(Array, self._fill_array, values.dictionary)
            array.dictionary = ctypes.pointer(made)
        if root:
            release = RELEASE_ARRAY(
                lambda array: self._released("array", array.contents, RELEASE_ARRAY)
            )
            KEPT.append(release)
            array.release = release

    def _made(self, kind, fill, what):
        made = kind()
        fill(made, what, root=False)
        KEPT.append(made)
        return made
