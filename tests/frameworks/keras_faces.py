"""The tests that test_keras.py runs with each backend."""

import importlib

import keras
import numpy as np
import pytest

import pyecho

ROWS = np.arange(50, dtype=np.float32)[:, None]
# With TensorFlow Keras warns of shuffle=True, the default; else it then asks out of order.
QUIET = {"verbose": 0, "shuffle": keras.backend.backend() != "tensorflow"}

# Keras' backends give some of their own.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


class Source:
    """Counts its passes."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([(row, row) for row in ROWS])

    def __len__(self):
        return len(ROWS)


def echoed(source=None, factor=2, loader=pyecho.EchoLoader, **options):
    return loader(source or Source(), factor, batch_size=8, **options)


def model(weight=None, built=True):
    layers = [keras.layers.Dense(1)]
    net = keras.Sequential([keras.Input((1,)), *layers] if built else layers)
    net.compile("sgd", keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"))
    if weight is not None:
        net.layers[-1].set_weights([np.full((1, 1), weight), np.zeros(1)])
    return net


class Count(keras.callbacks.Callback):
    """Counts steps."""

    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1


@pytest.mark.parametrize("built", [True, False])
def test_epoch_of_fit_is_one_of_the_loader(built):
    source, checked, count = Source(), Source(), Count()
    loader, validation = echoed(source), echoed(checked, 1, shuffle_buffer=1)
    options = {"epochs": 3, "callbacks": [count], "validation_data": validation.to_keras()}
    history = model(built=built).fit(loader.to_keras(), **options, **QUIET)
    assert count.steps == 3 * len(loader) == 39
    assert len(history.history["val_loss"]) == 3
    assert (source.passes, checked.passes) == (3, 3)
    assert (loader.stats().fresh, loader.stats().emitted) == (150, 300)
    assert validation.stats().emitted == 150


@pytest.mark.parametrize("built", [True, False])
def test_iterator_loses_nothing_to_a_look(built):
    loader = echoed(((row, row) for row in ROWS), steps_per_epoch=12)
    model(built=built).fit(loader.to_keras(), **QUIET)
    assert loader.stats().emitted == 96


def test_evaluate_and_predict_take_each_row_once_and_in_order():
    data = echoed(factor=1, shuffle_buffer=1).to_keras()
    assert len(data) == 7
    for _ in range(2):
        np.testing.assert_allclose(model(1).predict(data, verbose=0), ROWS)
        assert model(1).evaluate(data, verbose=0) == 0


def test_evaluation_of_few_steps_begins_at_the_beginning_each_time():
    data = echoed(factor=1, shuffle_buffer=1).to_keras()
    for _ in range(2):
        found = model(1).predict(data, steps=4, verbose=0)
        np.testing.assert_allclose(found, ROWS[:32])


def test_epoch_of_fewer_steps_goes_on_where_the_last_one_was_left():
    source = Source()
    loader = echoed(source)
    model().fit(loader.to_keras(), epochs=3, steps_per_epoch=4, **QUIET)
    assert (source.passes, loader.stats().emitted // 8) == (1, 12)


def test_weights_of_rows_and_classes_count():
    def weighted(batch, rng):
        return (*batch, np.zeros(len(batch[0]), np.float32))

    assert model().evaluate(echoed(augment=weighted).to_keras(), verbose=0) == 0
    labelled = echoed((ROWS, np.arange(50) % 2))
    history = model().fit(labelled.to_keras(), class_weight={0: 0.0, 1: 0.0}, **QUIET)
    assert history.history["loss"] == [0]


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_loaders_of_other_libraries_fit_too(library):
    pytest.importorskip(library)
    loader = importlib.import_module(f"pyecho.{library}").EchoLoader
    options = {"loader": loader, **({"pad_last": True} if library == "jax" else {})}
    echoing = echoed((ROWS, ROWS), **options)
    model().fit(echoing.to_keras(), epochs=2, **QUIET)
    assert echoing.stats().emitted == (208 if library == "jax" else 200)
    net = model(0)
    net.compile(weighted_metrics=["mse"])
    data = echoed((ROWS, ROWS), **options).to_keras()
    metrics = net.evaluate(data, verbose=0, return_dict=True)
    rows = np.concatenate([np.array(x) for x, _ in echoed((ROWS, ROWS), **options)])
    assert metrics["mse"] == pytest.approx((rows**2).mean())


def test_error_of_the_source_reaches_fit():
    def source():
        yield from ((row, row) for row in ROWS[:20])
        raise OSError("the disk is gone")

    with pytest.raises(Exception, match="the disk is gone"):  # TensorFlow makes its own of it
        model().fit(echoed(source(), steps_per_epoch=10).to_keras(), **QUIET)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [(iter(ROWS), {}, "pass steps_per_epoch="), (None, {"with_info": True}, "no place")],
)
def test_to_keras_refuses_what_keras_cannot_take(source, options, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        echoed(source, **options).to_keras()
