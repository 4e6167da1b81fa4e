"""`pyecho.integrations.lerobot`: samples are LeRobot's own, leaf by leaf."""

import importlib
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("lerobot")
torch = pytest.importorskip("torch")

from lerobot.datasets.lerobot_dataset import LeRobotDataset

import pyecho
from pyecho.integrations import lerobot
from pyecho.torch import EchoLoader

pytestmark = pytest.mark.filterwarnings("ignore")  # of LeRobot

FPS, LENGTHS = 10, (12, 5, 23)
DELTAS = {
    "observation.camera": [-0.2, -0.1, 0],
    "observation.wrist": [0.1],
    "observation.state": [-0.1],
    "action": [each / FPS for each in range(6)],
}


def has_torchcodec():
    try:
        importlib.import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError):  # without FFmpeg
        return False
    return True


@pytest.fixture(scope="module", params=["image", "video"])
def make(request, tmp_path_factory):
    """Return a function that opens a data set of three episodes, the last one with two tasks."""
    root = tmp_path_factory.mktemp(request.param) / "data"
    camera = {"dtype": request.param, "shape": (32, 48, 3), "names": ["height", "width", "channel"]}
    features = {
        "observation.camera": camera,
        "observation.wrist": camera,
        "observation.state": {"dtype": "float32", "shape": (3,), "names": None},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
        "is_good": {"dtype": "bool", "shape": (1,), "names": None},
        "words": {"dtype": "string", "shape": (1,), "names": None},
    }
    options = {"use_videos": request.param == "video", "vcodec": "h264"}
    dataset = LeRobotDataset.create("some/data", FPS, features, root, **options)
    rng = np.random.default_rng(0)
    for episode, length in enumerate(LENGTHS):
        for frame in range(length):
            pixels = rng.integers(0, 256, (2, 8, 12, 3), np.uint8).repeat(4, 1).repeat(4, 2)
            dataset.add_frame(
                {
                    "observation.camera": pixels[0],
                    "observation.wrist": pixels[1],
                    "observation.state": rng.normal(size=3).astype(np.float32),
                    "action": np.array([episode, frame], np.float32),
                    "is_good": np.array([frame % 2 == 0]),
                    "words": "left" if frame < 8 else "right",
                    "task": "push" if frame < 15 else "pull",
                }
            )
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()
    backend = "torchcodec" if has_torchcodec() else "pyav"

    def opened(**options):
        return LeRobotDataset("some/data", root, video_backend=backend, **options)

    return opened


def loader_of(dataset, frames=8, factor=8, deltas=None, **more):
    source = lerobot.chunks(dataset, frames=frames, delta_timestamps=deltas)
    options = {"batch_size": 7, "fields": source.fields, "ops": lerobot.windows(dataset, deltas)}
    return EchoLoader(source, factor, **options, **more)


def samples_of(loader):
    for batch in loader:
        for row in range(len(batch["task"])):
            yield {key: leaf[row] for key, leaf in batch.items()}


def check_samples(loader, dataset):
    """Check that all samples are those of the data set; return how often each came."""
    samples = {int(sample["index"]): sample for sample in dataset}
    found = Counter()
    for sample in samples_of(loader):
        wanted = samples[int(sample["index"])]
        assert sample.keys() == wanted.keys()
        for key, leaf in wanted.items():
            if isinstance(leaf, str):
                assert sample[key] == leaf
                continue
            assert (sample[key].shape, sample[key].dtype) == (leaf.shape, leaf.dtype), key
            torch.testing.assert_close(sample[key], leaf, atol=1e-7, rtol=0)
        found[int(sample["index"])] += 1
    return found


@pytest.mark.parametrize("deltas", [DELTAS, None, {"action": [0.3, 0.4]}])
@pytest.mark.parametrize("episodes", [None, [1, 2]])
def test_samples_are_those_of_the_dataset(make, deltas, episodes):
    dataset = make(delta_timestamps=deltas, episodes=episodes)
    found = check_samples(loader_of(dataset), dataset)
    assert len(found) == len(dataset)
    assert set(found.values()) <= {1, 2}


def test_as_many_uses_as_anchors_show_each_sample_once(make):
    dataset = make(delta_timestamps=DELTAS, episodes=[0])
    found = check_samples(loader_of(dataset, 4, 4, num_workers=2, shuffle=True), dataset)
    assert set(found.values()) == {1}
    assert len(found) == LENGTHS[0]


def test_samples_go_on_after_a_resume(make):
    def indices(loader):
        return [batch["index"].tolist() for batch in loader]

    dataset = make(delta_timestamps=DELTAS)
    options = {"factor": 3, "shuffle": True, "shuffle_buffer": 4}
    whole = indices(loader_of(dataset, **options))
    left, again = loader_of(dataset, **options), loader_of(dataset, **options)
    next(iter(left))
    again.load_state_dict(left.state_dict(payload=False))
    assert indices(again) == whole[1:]


def test_chunks_have_each_anchor_once_and_decode_no_more_than_windows_reach(make):
    source = lerobot.chunks(make(), frames=8, delta_timestamps=DELTAS)
    chunks = [source[number] for number in range(len(source))]
    anchors = np.concatenate([chunk["index"] for chunk in chunks])
    assert anchors.tolist() == [*range(sum(LENGTHS))]
    for chunk in chunks:
        count = len(chunk["index"])
        assert count <= 8
        assert len(chunk["observation.camera"]) == count + 2
        assert len(chunk["observation.wrist"]) == count
        assert len(chunk["action"]) == len(chunk["action_is_pad"]) == count + 5
        assert len(set(chunk["episode_index"])) == len(set(chunk["task_index"])) == 1


def test_wrong_arguments_are_refused(make):
    dataset = make()
    with pytest.raises(pyecho.ConfigError, match=r"multiples of 1/10 s"):
        lerobot.chunks(dataset, frames=8, delta_timestamps={"action": [0.05]})
    with pytest.raises(pyecho.ConfigError, match=r"the key 'actions', and the dataset has"):
        lerobot.windows(dataset, {"actions": [0]})
    with pytest.raises(pyecho.ConfigError, match="open it anew"):  # as after recording
        lerobot.chunks(SimpleNamespace(image_transforms=None, hf_dataset=[]), frames=8)
    with pytest.raises(pyecho.ConfigError, match="image_transforms"):
        lerobot.chunks(make(image_transforms=torch.nn.Identity()), frames=8)


def test_frames_that_are_not_at_their_timestamps_are_refused(make):
    dataset = make(delta_timestamps=DELTAS)
    if not dataset.meta.video_keys or dataset.video_backend != "torchcodec":
        pytest.skip("needs videos and torchcodec")
    place = "videos/observation.camera/from_timestamp"
    dataset.meta.episodes = [{**each, place: each[place] + 0.04} for each in dataset.meta.episodes]
    with pytest.raises(pyecho.EchoError, match="from their timestamps"):
        lerobot.chunks(dataset, frames=8)[0]
