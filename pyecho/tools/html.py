"""Picture of a loader in a notebook: its stages, and its statistics."""

from __future__ import annotations

from html import escape
from math import isnan

from pyecho.config import Config
from pyecho.stats import EchoStats


def html_of(title: str, source: str, config: Config, stats: EchoStats) -> str:
    """Return a picture and a table; `source`: the name of its type."""
    example_echoing = config.batch_size is not None
    items = "examples" if example_echoing else "items"
    delivered = f"{stats.batches} batches" if example_echoing else f"{stats.emitted} uses"
    fresh = stats.fresh_share if stats.emitted else 0.0
    picture = (
        _stage("source", source, f"{stats.read} {items} read"),
        _arrow("once"),
        _stage("pool", f"holds {config.capacity}", f"{stats.occupancy:.0%} full", stats.occupancy),
        _arrow(f"{'up to ' if config.adaptive else ''}{config.most_uses:g} uses"),
        _stage("batches", delivered, f"{fresh:.0%} fresh" if stats.emitted else "", fresh),
    )
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _numbers(stats)
    )
    return (
        f"<div><code>{escape(title)}</code>"
        "<div style='display:flex; align-items:center; gap:1em; margin:1em; text-align:center'>"
        f"{''.join(picture)}</div><table>{rows}</table></div>"
    )


def _numbers(stats: EchoStats) -> list[tuple[str, str]]:
    waited, seconds = stats.consumer_wait_seconds, stats.downstream_seconds
    share = f" ({waited / (waited + seconds):.0%} of its time)" if seconds else ""
    return [
        ("R = t_up / t_down", _number(stats.ratio, "{:.2f}")),
        ("effective factor", _number(stats.effective_factor, "{:.2f}")),
        ("fresh share", _number(stats.fresh_share, "{:.0%}")),
        ("pool occupancy", f"{stats.occupancy:.0%}"),
        ("consumer waited", f"{waited:.2f} s{share}"),
        ("source took", f"{stats.source_seconds:.2f} s"),
    ]


def _number(value: float, form: str) -> str:
    return "unknown yet" if isnan(value) else form.format(value)


def _stage(name: str, first: str, second: str, fill: float | None = None) -> str:
    """Return a stage: its name, two lines about it, and a bar that is filled up to a share."""
    bar = "" if fill is None else f"<progress value='{fill:.2f}' style='width:9em'></progress><br>"
    return f"<div><b>{name}</b><br>{bar}{escape(first)}<br>{escape(second)}</div>"


def _arrow(label: str) -> str:
    return f"<div>{escape(label)}<br>\N{LONG RIGHTWARDS ARROW}</div>"
