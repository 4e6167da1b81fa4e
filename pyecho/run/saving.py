"""Makes the state of a run: a position, and with the payload also its items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyecho._core import ConfigError, EchoError
from pyecho.config import Config
from pyecho.items.spec import Adapter
from pyecho.run.epochs import Epochs
from pyecho.source import Source
from pyecho.state.position import PAYLOAD, Position, position_of, without_items

if TYPE_CHECKING:
    from pyecho.state.check import SavedState


def state_of(epochs: Epochs, payload: bool) -> dict[str, Any]:
    """Return what a state holds of a run, in its turn."""
    epochs.thread_pool.check_open()
    if epochs.thread_pool.is_current:
        raise EchoError("the source and augment cannot take a state of the loader they serve")
    lists, saved = epochs.wiring.lists, epochs.saved
    if saved is None:
        found = _state_now(epochs, payload)
    else:  # nothing has happened since
        found = _saved_again(saved, epochs.config, epochs.source, payload=payload)
    # After the position, of which it is to know all passes: the source may be read meanwhile.
    found |= {"lists": None if lists is None else list(lists), "order": _order_of(epochs)}
    seen = epochs.source.seen.state() if saved is None else saved.seen
    serves_all = found.get("rank", 0) is None or found["position"] is None
    return found | {"seen": [] if serves_all else seen}


def _order_of(epochs: Epochs) -> Any:
    if epochs.saved is not None:
        return epochs.saved.raw["order"]
    return epochs.source.order(epochs.number if epochs.flow is None else None)


def _state_now(epochs: Epochs, payload: bool) -> dict[str, Any]:
    if epochs.flow is not None and epochs.flow.token is not None and epochs.flow.at_end:
        epochs.finish(epochs.flow.token, completed=False)  # an exception has ended the iteration
    source, number, flow = epochs.source, epochs.number, epochs.flow
    holder = source.holder
    if flow is not None and flow.pipeline is not None:
        if (holder is not None or source.native) and not payload:
            raise _needs_payload(source)
        return {"epoch": number} | flow.state(payload=payload)
    if holder is not None and epochs.reading is not None:
        raise EchoError(
            "the beginning of this epoch was cut short, and its source, which has a state of "
            "its own, may be an item ahead; take the state after the next batch"
        )
    epochs.thread_pool.wait()  # the pass before is left, if not yet
    # An iterator would be that of a pass that was dropped.
    state = source.state() if holder is source.object or holder is source else None
    if flow is not None:  # of which only the end is left
        number += flow.is_epoch
    found = {"epoch": number, "position": None, "source": state}
    return found if state is not None else found | {"rank": None}


def _saved_again(
    saved: SavedState, config: Config, source: Source, *, payload: bool
) -> dict[str, Any]:
    """Return the parts of a state that was loaded, if nothing has happened since."""
    snapshot, raw = saved.snapshot, saved.raw
    found: dict[str, Any] = {"epoch": saved.epoch, "source": saved.source, "position": None}
    if snapshot is None:
        return found | {"rank": raw["rank"]}
    position = raw["position"] | {"uses": snapshot.at.uses}  # of this number of ranks
    if payload or snapshot.unspent is None:
        found |= {name: raw[name] for name in PAYLOAD}
        return found | {"position": position, "rank": raw["rank"]}
    if saved.source is not None:
        raise _needs_payload(source)
    iterations, delivered = snapshot.taken
    position |= {"iterations": iterations, "delivered": delivered, "batches": delivered}
    return found | without_items(position, config, has_order=saved.order is not None)


def _needs_payload(source: Source) -> EchoError:
    """Return the error of a position without items in a source that cannot be read again."""
    return EchoError(
        f"the source ({type(source.object).__name__}) cannot yield single items again, because it "
        "goes on by a state of its own or fills slots itself: use state_dict(payload=True)"
    )


def skipped(epochs: Epochs, count: int, items: int | None, adapter: Adapter) -> dict[str, Any]:
    """Return what a state holds whose consumer has taken `count` batches of the next epoch.

    `items`: of a pass, which decide its batches. `adapter`: has the arrays of a state. See
    `EchoLoader.skip_first_batches`.
    """
    config, source = epochs.config, epochs.source
    if epochs.unfinished:
        raise EchoError("skip_first_batches() is for the time between two iterations")
    if config.adaptive or source.holder is not None or items is None:
        raise EchoError(
            "to skip batches, the factor must be a number, and the source must tell its length "
            "and have no state of its own; use state_dict() and load_state_dict() here"
        )
    batches = config.batches_of(items)
    if batches is not None and count > batches:
        raise ConfigError(f"count must be at most {batches}, the batches of an epoch")
    number, iterations, flow, saved = epochs.number, 0, epochs.flow, epochs.saved
    if saved is not None and saved.snapshot is not None:
        number, iterations = saved.snapshot.at.epoch, saved.snapshot.taken[0]
    elif flow is not None and epochs.flows:
        number, iterations = flow.saved.at.epoch, number - flow.saved.at.epoch
    uses = config.uses_of(items) if config.bounded and config.steps_per_epoch is None else None
    at = Position(iterations=iterations, batches=count, delivered=count, passes=None)
    length = source.length()
    position = position_of(vars(at), number, length, uses)
    position |= {"segment": None, "decisions": adapter.saved(at.decisions)}
    return {"epoch": epochs.number, "position": position, "order": _order_of(epochs)}
