"""States of a run over several ranks, which can go on with another number of them.

All streams of a run stand at the same place: whole iterations, and so many batches of the next one.
So the states of R ranks become those of R' ranks by numbers alone, without the items, which each
rank reads from its source again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyecho._core import CheckpointError, EchoError
from pyecho.run.ranks import ENDLESS, check_rank
from pyecho.state.check import MOST_EPOCHS, _count, _is_text, _plain
from pyecho.state.state import MOST_PASSES, VERSION, digest, taken_only

MOST_RANKS = 2**20


@contextmanager
def _reading() -> Iterator[None]:
    """Have all that a damaged state makes a function raise be a `CheckpointError`."""
    try:
        yield
    except EchoError:
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise CheckpointError(f"this is no whole state of a run: {error!r}") from error


@_reading()
def merge(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state of a run: those of its ranks, in their order, taken after the same batch.

    ``loader.load_state_dict()`` takes it on any rank; see `split` about other numbers of ranks.
    Save ``state_dict(payload=False)`` to keep it small. Raises `CheckpointError` if they are not
    the states of one run, or of different batches.
    """
    states = list(states) if not isinstance(states, dict) else []
    if not states or not all(isinstance(state, dict) for state in states):
        raise CheckpointError("merge() needs the states of the loaders of all ranks")
    plain = [_plain_state(state) for state in states]
    places = [_place_of(state) for state in plain]
    for rank, (state, place) in enumerate(zip(plain, places, strict=True)):
        if (state["rank"], state["ranks"]) != (rank, len(states)):
            raise CheckpointError(
                f"merge() needs the states of all ranks in their order; number {rank} of "
                f"{len(states)} is that of rank {state['rank']} of {state['ranks']}"
            )
        if place != places[0]:
            raise CheckpointError(
                f"the states of ranks 0 and {rank} were taken after different batches, or those "
                "loaders have other options; take the states of all ranks after the same step"
            )
    return {"format": "pyecho", "version": VERSION, "kind": "run", "states": states}


@_reading()
def split(run: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    """Return the state of one of so many ranks.

    `run`: what `merge` returned, or a rank's state without items (``payload=False``), which tells
    of the whole run. For the number of ranks that the run had, it is the state of that rank. Else
    the new ranks have ``batch_size`` and ``shuffle_buffer`` in proportion, so that the global batch
    stays what it was, and source r yields items r, r + ranks, ... of the same whole: they go on
    with the same global batches, bit for bit. The number must divide `shards`.

    Raises `ConfigError` if there is no such rank, and `CheckpointError` where the state cannot be:
    if a source has a state of its own, or is of unknown length and one that is known here has met
    its end.
    """
    check_rank("split()", rank, ranks)
    states = run.get("states", [run])
    plain = [_plain_state(state) for state in states]
    first, before = plain[0], plain[0]["ranks"]
    flow, options = first["flow"], first["options"]
    if len(states) == before == ranks:
        if plain[rank]["rank"] != rank:
            raise CheckpointError("the states of the run are not in the order of their ranks")
        return dict(states[rank])
    if len(states) == 1 and (first["rank"], before) == (rank, ranks):
        return dict(states[0])
    if first["source"] or (len(states) < before and flow is not None and flow["payload"]):
        raise CheckpointError(
            f"the state holds what is that of rank {first['rank']} of {before} alone, and this is "
            f"rank {rank} of {ranks}; save one for each rank, or state_dict(payload=False)"
        )
    if before != ranks and options["min_uses"]:
        raise CheckpointError(
            f"the ranks decide an adaptive factor together, and the state was taken with {before} "
            f"of them, not with {ranks}; start as many, or pass a number as the factor"
        )
    if before != ranks:
        _scale(options, before, ranks)
    state: dict[str, Any] = {
        "format": "pyecho",
        "version": VERSION,
        "kind": "loader",
        "rank": rank,
        "ranks": ranks,
        "options": options,
        "epoch": first["epoch"],
        "flow": None,
        "source": None,
    }
    if flow is not None:
        lengths = _lengths_of([each["flow"] for each in plain], before)
        if lengths is not None and before != ranks:
            whole = sum(lengths)  # each rank's items are every ranks-th one of it
            lengths = [max(0, whole - each + ranks - 1) // ranks for each in range(ranks)]
        state["flow"] = _flow_of(flow, lengths, options, rank, (before, ranks))
    state["digest"] = digest(state)
    return state


def _plain_state(state: Any) -> dict[str, Any]:
    """Check what is read of a state here, and return that as plain numbers. Calls nothing in it."""
    if isinstance(state, dict) and _is_text(state.get("kind"), "run"):
        raise CheckpointError("this is the state of a run, and that of one rank is needed here")
    if not isinstance(state, dict) or not _is_text(state["digest"], digest(state)):
        raise CheckpointError("the state is damaged: its digest is that of another one")
    if not _is_text(state["kind"], "loader") or _count(state["version"]) != VERSION:
        raise CheckpointError("this is no state of a loader that this pyecho reads")
    options = {name: _plain(value) for name, value in state["options"].items()}
    if not all(value is None or type(value) in (bool, int, float) for value in options.values()):
        raise CheckpointError("the state lacks the options of its loader")
    flow = state["flow"]
    return {
        "rank": _count(state["rank"], MOST_RANKS),
        "ranks": max(1, _count(state["ranks"], MOST_RANKS)),
        "options": options,
        "epoch": _count(state["epoch"], MOST_EPOCHS),
        "source": state["source"] is not None,
        "flow": None if flow is None else _plain_flow(flow),
    }


def _plain_flow(flow: dict[str, Any]) -> dict[str, Any]:
    def known(value: Any, of: Callable[[Any], Any]) -> Any:
        return None if value is None else of(value)

    def uses(value: Any) -> int:
        plain = _plain(value)
        return ENDLESS if type(plain) is int and plain == ENDLESS else _count(value)

    links = [(_count(link[0]), _count(link[1])) for link in flow["links"].values()]
    return {
        "epoch": _count(flow["epoch"], MOST_EPOCHS),
        "iteration_uses": uses(flow["iteration_uses"]),
        "total_uses": uses(flow["total_uses"]),
        "last": known(flow["last"], _count),
        "lengths": known(flow["lengths"], lambda lengths: list(map(_count, lengths))),
        "passes": [(_count(passes), _count(items)) for passes, items in flow["passes"]],
        "ended": _plain(flow["ended"]) is True,
        "decisions": flow["decisions"],
        "knots": [list(map(_count, knot)) for knot in flow.get("knots", [])],
        "taken": min([(_count(flow["iterations"]), _count(flow["delivered"])), *links]),
        "payload": "numbers" in flow,
    }


def of_rank(state: Any, rank: int, ranks: int) -> Any:
    """Return the part of a run's state that is this rank's; any other state as it is."""
    if not isinstance(state, dict) or not isinstance(kind := state.get("kind"), str):
        return state
    if kind != "run" and (kind != "loader" or max(ranks, _number(state.get("ranks"))) == 1):
        return state
    return split(state, rank, ranks)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 1


def _place_of(state: dict[str, Any]) -> tuple[Any, ...]:
    flow = state["flow"]
    return (state["options"], state["epoch"], None if flow is None else flow["taken"])


def _scale(options: dict[str, Any], before: int, ranks: int) -> None:
    """Change the options of one of `before` ranks to those of one of `ranks`."""
    if (options["shards"] or 1) % ranks or options["shards"] is None:
        raise CheckpointError(
            f"the run has shards={options['shards']}, which cannot be dealt to {ranks} ranks; "
            "begin it with a number that all your numbers of ranks divide, such as 12"
        )
    names = ("batch_size", "shuffle_buffer")
    batch, pool = ((options[name] or 0) * before for name in names)
    if options["batch_size"] is None or batch % ranks or pool % ranks:
        raise CheckpointError(
            f"a global batch of {batch} rows and {pool} places in the pools cannot be dealt to "
            f"{ranks} ranks equally; only batches of example echoing can be"
        )
    options |= {"batch_size": batch // ranks, "shuffle_buffer": pool // ranks}


def _lengths_of(flows: list[dict[str, Any]], before: int) -> list[int] | None:
    """Return the items of a pass on each rank, None if they need not be known."""
    lengths = flows[0]["lengths"]
    if lengths is None and len(flows) == before and all(flow["ended"] for flow in flows):
        lengths = [flow["passes"][0][1] if flow["passes"] else 0 for flow in flows]
    if lengths is None and any(flow["ended"] for flow in flows):
        raise CheckpointError(
            "a rank has met the end of its source, and the lengths of the others are unknown; "
            "load this state with the number of ranks it was taken with, and one for each"
        )
    return None if lengths is None else list(map(int, lengths))


def _flow_of(
    flow: dict[str, Any],
    lengths: list[int] | None,
    options: dict[str, Any],
    rank: int,
    numbers: tuple[int, int],  # of ranks, before and now
) -> dict[str, Any]:
    passes = MOST_PASSES if options["steps_per_epoch"] else 1
    if options["epochs"]:
        passes = max(1, options["epochs"] - flow["epoch"])
    uses = {name: flow[name] for name in ("iteration_uses", "total_uses")}
    known = flow["lengths"] is not None and lengths is not None
    # With an adaptive factor, sources are read up to the length of the longest one.
    evened = options["min_uses"] and not options["steps_per_epoch"]
    longest = max(lengths) if evened and lengths else None
    return {
        "epoch": flow["epoch"],
        "items": lengths[rank] if known and lengths else None,
        **{name: n if n == ENDLESS else n * numbers[0] // numbers[1] for name, n in uses.items()},
        "last": flow["last"],
        "lengths": lengths if known else None,
        "passes": [] if lengths is None else [[passes, longest if longest else lengths[rank]]],
        "open_items": 2**40 if lengths is None else 0,
        "ended": lengths is not None and not options["steps_per_epoch"],
        "decisions": flow["decisions"],
        "knots": flow["knots"],
        **taken_only(*flow["taken"]),
    }
