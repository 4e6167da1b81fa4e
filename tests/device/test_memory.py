"""`max_device_bytes`: a bound of what is kept on the device."""

import pytest
import torch

import pyecho.torch


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({}, (2 + 1 + 2) * 40),
        ({"batch_size": 4}, 2 * 4 * 40),
        ({"batch_size": 4, "device_dtype": torch.float16}, 2 * 4 * 20),
        # The pool has twice the batch size more slots than the shuffle buffer, each of some words.
        ({"batch_size": 4, "echo_on": "device"}, (6 + 8) * 48 + 4 * 2 * 40 + 2 * 4 * 40),
    ],
)
def test_max_device_bytes_bounds_what_is_kept_on_the_device(device, arguments, needed):
    arguments = {"device": "cuda:0", "shuffle_buffer": 6, "memory": "pageable", **arguments}
    if "batch_size" not in arguments:
        arguments["shuffle_buffer"] = 3
    source = [torch.full((2, 5), float(number)) for number in range(21)] * 20

    def take(limit):
        return next(iter(pyecho.torch.EchoLoader(source, 2, **arguments, max_device_bytes=limit)))

    with pytest.raises(pyecho.ConfigError, match=r"need (\d+) bytes on cuda:0, but") as raised:
        take(10)
    assert f"need {needed} bytes" in str(raised.value)
    with pytest.raises(pyecho.ConfigError, match="max_device_bytes is"):
        take(needed - 1)
    take(needed)
