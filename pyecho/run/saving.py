"""Makes the state of a run: a position, and with the payload also its items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyecho._core import ConfigError, EchoError
from pyecho.config import Config
from pyecho.run.flow import Flow
from pyecho.source import Source
from pyecho.state.position import Position, position_of

if TYPE_CHECKING:
    from pyecho.run.run import Run
    from pyecho.state.check import SavedState

PAYLOAD = ("unspent", "links", "held", "held_row")


def saved_again(saved: SavedState, payload: bool, source: Source) -> dict[str, Any]:
    """Return the parts of a state that was loaded, if nothing has happened since."""
    snapshot, raw = saved.snapshot, saved.raw
    found: dict[str, Any] = {"epoch": saved.epoch, "source": saved.source, "position": None}
    if snapshot is None:
        return found | {"rank": raw["rank"]}
    position = raw["position"] | {"uses": snapshot.at.uses}  # of this number of ranks
    if payload or snapshot.unspent is None:
        found |= {name: raw[name] for name in PAYLOAD}
    elif saved.source is not None:
        raise needs_payload(source)
    else:
        iterations, delivered = snapshot.taken
        position |= {"iterations": iterations, "delivered": delivered, "batches": delivered}
    found["position"] = position
    return found | {"rank": raw["rank"]}


def saved_now(flow: Flow, config: Config, *, payload: bool, with_held: bool) -> dict[str, Any]:
    """Return what a state holds of a flow, whose threads are at rest.

    Without the payload, and where all passes are as long as told, the position is good for a source
    of this length: on every rank, and for other numbers of ranks.
    """
    assert flow.pipeline is not None
    native = flow.pipeline.state(payload=payload, with_held=with_held)
    items, uses = flow.extent.items, flow.extent.uses
    position = position_of(native, flow.epoch, items, uses)
    if payload:
        return {"position": position} | {name: native[name] for name in PAYLOAD if name in native}
    alike = all(each == items for _, each in native["passes"])
    if items is None or not alike or native["open_items"] > items:
        return {"position": position}
    position |= {"passes": None, "open_items": 0, "ended": False}
    if config.wiring.ranks == 1 and config.shards is None:
        return {"position": position}
    position["items"] = None  # of this rank
    return {"position": position} | ({} if config.adaptive else {"rank": None})


def between_epochs(epoch: int, source: Source) -> dict[str, Any]:
    """Return what a state holds while no epoch has begun."""
    state = source.state()
    found = {"epoch": epoch, "position": None, "source": state}
    return found if state is not None else found | {"rank": None}


def at_beginning(epoch: int, source: Source) -> dict[str, Any]:
    """Return what a state holds where the beginning of an epoch was cut short."""
    if source.holder is None:
        return between_epochs(epoch, source)
    raise EchoError(
        "the beginning of this epoch was cut short, and its source may be an item ahead; take the "
        "state after the next batch"
    )


def passes_follow(config: Config, source: Source, epoch: int) -> bool:
    """Return True if another pass follows that of this epoch without a break."""
    if source.one_shot or config.steps_per_epoch is not None:
        return config.steps_per_epoch is not None
    return config.epochs is not None and epoch + 1 < config.epochs


def only_end_is_left(run: Run, config: Config, source: Source) -> bool:
    """Return True if a loaded state has only the end of its epoch left, and another flows on."""
    snapshot = None if run.saved is None else run.saved.snapshot
    if snapshot is None or not passes_follow(config, source, run.epoch):
        return False
    items = source.length() if snapshot.at.passes is None else snapshot.at.items
    return snapshot.taken[1] == config.batches_of(items)


def needs_payload(source: Source) -> EchoError:
    """Return the error of a position without items in a source that cannot be read again."""
    return EchoError(
        f"the source ({type(source.object).__name__}) cannot yield single items again, because it "
        "goes on by a state of its own or fills slots itself: use state_dict(payload=True)"
    )


def skipped(
    count: int, run: Run, config: Config, source: Source, items: int | None
) -> dict[str, Any]:
    """Return what a state holds whose consumer has taken `count` batches of the next epoch.

    `items`: of a pass, which decide its batches. See `EchoLoader.skip_first_batches`.
    """
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
        epoch, iterations = saved.snapshot.at.epoch, saved.snapshot.at.iterations
    elif flow is not None and flow.is_between:
        epoch, iterations = flow.epoch, run.epoch - flow.epoch
    uses = config.uses_of(items) if config.bounded and config.steps_per_epoch is None else None
    at = Position(iterations=iterations, batches=count, delivered=count, passes=None)
    length = source.length()
    return {"epoch": run.epoch, "position": position_of(vars(at), epoch, length, uses)}
