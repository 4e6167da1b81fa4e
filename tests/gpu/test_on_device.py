"""Values made on the device: by the source, by `device_augment`, and by CUDA graphs."""

import pytest

torch = pytest.importorskip("torch")

import torn  # noqa: E402

import pyecho.torch  # noqa: E402

WIDTH, COUNT, FACTOR = 50_000, 40, 3
WAYS = {
    "batches": {},
    "examples on the host": {"batch_size": 8, "shuffle_buffer": 12},
    "examples on the device": {"batch_size": 8, "shuffle_buffer": 12, "echo_on": "device"},
}
ways = pytest.mark.parametrize("way", WAYS)


def rows(count=COUNT):
    return [torch.full((2, WIDTH), float(number)) for number in range(count)]


def values_of(batches):
    return torn.values_of(torch.cat([each.reshape(-1, 2 * WIDTH) for each in batches])).tolist()


def on_host(way, factor=FACTOR, **more):
    options = {name: value for name, value in WAYS[way].items() if name != "echo_on"}
    loader = pyecho.torch.EchoLoader(rows(), factor, **options, **more)
    return [value for batch in loader for value in values_of([batch])]


# ---------------------------------------------------------------- sources


@pytest.mark.parametrize("unbatch", [None, "augmented", False, True])
def test_the_stream_that_makes_an_item_is_waited_for(device, sleep, unbatch):
    def source():
        with torch.cuda.stream(torch.cuda.Stream(device)):
            for number in range(COUNT):
                sleep(1e-3)
                made = torch.full((2, WIDTH), float(number), device=device)
                yield made if unbatch is not True else made[None]
                del made

    options = {"shuffle_buffer": 0}
    if unbatch == "augmented":
        options |= {"augment": lambda batch, rng: batch + 0, "augment_workers": 2}
    elif unbatch is not None:
        options |= {"batch_size": 8, "echo_on": "device", "unbatch": unbatch}
    stream = torch.cuda.Stream(device)  # no order with the source's stream but by pyecho
    seen = []
    with torch.cuda.stream(stream):
        for batch in pyecho.torch.EchoLoader(source(), FACTOR, device=device, **options):
            seen.append(batch.clone())
            del batch
        emitted = values_of(seen)
    assert emitted == [number for number in range(COUNT) for _ in range(FACTOR)]


# ---------------------------------------------------------------- augmentation


@ways
def test_every_use_is_augmented_on_pyechos_stream(device, sleep, way):
    def shifted(batch, generator):
        assert batch.device == generator.device == device
        sleep(1e-3)
        return batch + generator.initial_seed() % 1009

    options = {"device": device, "device_augment": shifted, **WAYS[way]}
    loader = pyecho.torch.EchoLoader(rows(), FACTOR, **options)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        epochs = [values_of([batch + 0 for batch in loader]) for _ in range(2)]
    assert -1 not in epochs[0]
    assert epochs[0] != epochs[1]
    size = WAYS[way].get("batch_size", 1)
    plain = on_host(way)
    added = [round(ours - theirs) for ours, theirs in zip(epochs[0], plain, strict=True)]
    batches = [set(added[start : start + size]) for start in range(0, len(added), size)]
    assert all(len(batch) == 1 for batch in batches)
    assert len(set(added)) > len(batches) // 2


def test_a_stream_that_the_function_leaves_behind_is_its_own(device):
    other = torch.cuda.Stream(device)

    def leaving(batch, generator):
        torch.cuda.set_stream(other)
        torch.cuda._sleep(1_000_000)
        return batch

    for way in WAYS:
        options = {"device": device, "device_augment": leaving, **WAYS[way]}
        loader = pyecho.torch.EchoLoader(rows(), FACTOR, **options)
        assert values_of([batch.clone() for batch in loader]) == on_host(way)


# ---------------------------------------------------------------- CUDA graphs


@ways
def test_a_graph_is_replayed_on_each_batch(device, sleep, way):
    loader = pyecho.torch.EchoLoader(rows(), FACTOR, device=device, **WAYS[way])
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        static = torch.empty_like(next(iter(loader)))
        static * 2  # warm-up
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        doubled = static * 2
    seen = []
    loader.set_epoch(0)
    with torch.cuda.stream(stream):
        for batch in loader:
            static.copy_(batch)
            graph.replay()
            sleep(1e-3)
            seen.append(doubled.clone())
        emitted = values_of(seen)
    assert emitted == [2 * value for value in on_host(way)]
