"""`pad_last`: a pass has as many uses as fill its last batch."""

import re
from itertools import chain

import pytest
import reference_model as model
from drivers import Iterated

import pyecho


def padded(source, factor, batch_size, **options):
    return pyecho.EchoLoader(
        source, factor, batch_size=batch_size, pad_last=True, with_info=True, **options
    )


def uses_of(loader):
    return [
        list(map(model.Use, info.source_index.tolist(), info.use.tolist())) for _, info in loader
    ]


@pytest.mark.filterwarnings("ignore:the consumer keeps batches")
def test_source_with_fewer_items_than_its_length_is_an_error_with_both_numbers():
    class Short(Iterated):
        def __len__(self):
            return 40

    batches, taken = iter(padded(Short(range(13)), 2, 8)), []
    with pytest.raises(pyecho.EchoError, match="Short") as raised:
        taken.extend(batches)
    assert {"13", "40"} <= set(re.findall(r"\d+", str(raised.value)))
    assert set(chain(*(batch.tolist() for batch, _ in taken))) <= set(range(13))


def test_items_beyond_the_length_are_left_out_with_a_warning():
    class Long(Iterated):
        def __len__(self):
            return 10

    loader = padded(Long(range(20)), 2, 8)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"Long.*more than.*\b10\b") as caught:
            taken = uses_of(loader)
        assert caught[0].filename == __file__
        assert [len(batch) for batch in taken] == [8] * 3
        assert {use.item for use in chain(*taken)} == set(range(10))
