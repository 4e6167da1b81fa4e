"""Makes the state of a run: a position, and with the payload also its items.

Loaded only for states, and for skipping batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyecho._core import ConfigError, EchoError
from pyecho.config import Config
from pyecho.items.spec import Adapter
from pyecho.run.engine import Flow
from pyecho.source import Source
from pyecho.state.position import Position, position_of

if TYPE_CHECKING:
    from pyecho.run.run import Run
    from pyecho.state.check import SavedState

PAYLOAD = ("unspent", "links", "held", "held_row")


def state_of(run: Run, payload: bool) -> dict[str, Any]:
    """Return what a state holds of a run, in its turn."""
    run.engine.crew.check_open()
    if run.engine.crew.is_current:
        raise EchoError("the source and augment cannot take a state of the loader they serve")
    lists = run.engine.wiring.lists
    found = _found(run, payload)
    # After the position, of which it is to know all passes: the source may be read meanwhile.
    found |= {"lists": None if lists is None else list(lists), "order": _order_of(run)}
    seen = run.source.seen.state() if run.saved is None else run.saved.seen
    serves_all = found.get("rank", 0) is None or found["position"] is None
    return found | {"seen": [] if serves_all else seen}


def _order_of(run: Run) -> Any:
    if run.saved is not None:
        return run.saved.raw["order"]
    return run.source.order(run.epoch if run.flow is None else None)


def _found(run: Run, payload: bool) -> dict[str, Any]:
    source, epoch, flow = run.source, run.epoch, run.flow
    if run.saved is not None:  # nothing has happened since
        return saved_again(run.saved, run.config, source, payload=payload)
    holder = source.holder
    has_state = holder is not None
    if flow is None or flow.pipeline is None:  # no epoch has begun
        if has_state and run.reading is not None:
            raise EchoError(
                "the beginning of this epoch was cut short, and its source, which has a state of "
                "its own, may be an item ahead; take the state after the next batch"
            )
        run.engine.crew.wait()  # the pass before is left, if not yet
        # An iterator would be that of a pass that was dropped.
        state = source.state() if holder is source.object or holder is source else None
        if flow is not None:  # of which only the end is left
            epoch += flow.is_epoch(source)
        found = {"epoch": epoch, "position": None, "source": state}
        return found if state is not None else found | {"rank": None}
    if (has_state or source.native) and not payload:
        raise needs_payload(source)
    if flow.end_is_due and run.config.drop_last and not (has_state or source.native):
        payload = payload and source.one_shot  # items whose uses are to be dropped are in the pool
    with run.engine.at_rest(flow, reading=has_state):
        has_order = source.order(None) is not None
        found = saved_now(
            flow, run.config, payload=payload, with_held=has_state, has_order=has_order
        )
        return {"epoch": epoch, "source": source.state() if has_state else None} | found


def saved_again(
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
        raise needs_payload(source)
    iterations, delivered = snapshot.taken
    position |= {"iterations": iterations, "delivered": delivered, "batches": delivered}
    return found | without_items(position, config, has_order=saved.order is not None)


def saved_now(
    flow: Flow, config: Config, *, payload: bool, with_held: bool, has_order: bool
) -> dict[str, Any]:
    """Return what a state holds of a flow, whose threads are at rest."""
    assert flow.pipeline is not None
    assert flow.extent is not None
    native = flow.pipeline.state(payload=payload, with_held=with_held)
    items, uses = flow.extent.items, flow.extent.uses
    position = position_of(native, flow.saved.at.epoch, items, uses)
    if payload:
        return {"position": position} | {name: native[name] for name in PAYLOAD if name in native}
    return without_items(position, config, has_order=has_order)


def without_items(position: dict[str, Any], config: Config, *, has_order: bool) -> dict[str, Any]:
    """Return the position without the payload, and the rank None if it serves all.

    Where all passes are as long as told, the position is good for a source of this length: on every
    rank, and for other numbers of ranks.
    """
    items, segment = position["items"], Position.of_input(position).segment
    alike = segment.alike and all(each == items for _, each in position["passes"])
    alike = alike and not (segment.streams and config.adaptive)  # whose joints follow from draws
    if items is None or not alike or position["open_items"] > items:
        return {"position": position}
    position |= {"segment": None, "passes": None, "open_items": 0, "ended": False}
    if config.ranks == 1 and config.shards is None:
        return {"position": position}
    position["items"] = None  # of this rank
    is_own = config.adaptive is not None or has_order
    return {"position": position} | ({} if is_own else {"rank": None})


def needs_payload(source: Source) -> EchoError:
    """Return the error of a position without items in a source that cannot be read again."""
    return EchoError(
        f"the source ({type(source.object).__name__}) cannot yield single items again, because it "
        "goes on by a state of its own or fills slots itself: use state_dict(payload=True)"
    )


def skipped(run: Run, count: int, items: int | None, adapter: Adapter) -> dict[str, Any]:
    """Return what a state holds whose consumer has taken `count` batches of the next epoch.

    `items`: of a pass, which decide its batches. `adapter`: has the arrays of a state. See
    `EchoLoader.skip_first_batches`.
    """
    config, source = run.config, run.source
    if run.unfinished:
        raise EchoError("skip_first_batches() is for the time between two iterations")
    if config.adaptive or source.holder is not None or items is None:
        raise EchoError(
            "to skip batches, the factor must be a number, and the source must tell its length "
            "and have no state of its own; use state_dict() and load_state_dict() here"
        )
    batches = config.batches_of(items)
    if batches is not None and count > batches:
        raise ConfigError(f"count must be at most {batches}, the batches of an epoch")
    epoch, iterations, flow, saved = run.epoch, 0, run.flow, run.saved
    if saved is not None and saved.snapshot is not None:
        epoch, iterations = saved.snapshot.at.epoch, saved.snapshot.taken[0]
    elif flow is not None and run.flows:
        epoch, iterations = flow.saved.at.epoch, run.epoch - flow.saved.at.epoch
    uses = config.uses_of(items) if config.bounded and config.steps_per_epoch is None else None
    at = Position(iterations=iterations, batches=count, delivered=count, passes=None)
    length = source.length()
    position = position_of(vars(at), epoch, length, uses)
    position |= {"segment": None, "decisions": adapter.saved(at.decisions)}
    return {"epoch": run.epoch, "position": position, "order": _order_of(run)}
