"""Picture of a loader in a notebook: its stages, and its statistics."""

from __future__ import annotations

from html import escape
from math import isnan

from pyecho.config import Config
from pyecho.stats import EchoStats

SOURCE, FRESH, REPEAT, EMPTY = "#6b7f99", "#2a6f4e", "#7dbb9b", "#e8edea"
LEFT, WIDTH, TOP, HEIGHT = (8, 248, 488), 144, 34, 64
"""Of the boxes of source, pool and batches."""


def html_of(title: str, source: str, config: Config, stats: EchoStats) -> str:
    """Return a picture and a table; `source`: the name of its type."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in _numbers(stats)
    )
    return (
        f"<div><code>{escape(title)}</code><br>{_picture(source, config, stats)}"
        f"<table>{rows}</table></div>"
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


def _picture(source: str, config: Config, stats: EchoStats) -> str:
    example_echoing = config.batch_size is not None
    uses = f"up to {config.most_uses:g}" if config.adaptive else f"{config.most_uses:g}"
    pool, out = LEFT[1], LEFT[2]
    fill = round(WIDTH * min(1.0, stats.occupancy))
    fresh = round(WIDTH * stats.fresh_share) if stats.emitted else 0
    delivered = f"{stats.batches} batches" if example_echoing else f"{stats.emitted} uses"
    items = "examples" if example_echoing else "items"
    parts = [
        _box(LEFT[0], SOURCE),
        _box(pool, EMPTY),
        _box(pool, REPEAT, fill),
        _box(out, REPEAT if stats.emitted else EMPTY),
        _box(out, FRESH, fresh),
        _arrow(LEFT[0] + WIDTH, pool, "once"),
        _arrow(pool + WIDTH, out, f"{uses} uses"),
    ]
    for left, name, first, second in (
        (LEFT[0], "source", source, f"{stats.read} {items} read"),
        (pool, "pool", f"holds {config.capacity}", f"{stats.occupancy:.0%} full"),
        (out, "batches", delivered, f"{stats.fresh_share:.0%} fresh" if stats.emitted else ""),
    ):
        middle = left + WIDTH // 2
        parts += [
            _text(middle, TOP - 10, name, weight="bold"),
            _text(middle, TOP + HEIGHT + 18, first),
            _text(middle, TOP + HEIGHT + 34, second),
        ]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='640' height='140' viewBox='0 0 640 140' "
        f"role='img' font-family='sans-serif' font-size='12'>"
        f"<title>source, pool and batches</title>{''.join(parts)}</svg>"
    )


def _box(left: int, colour: str, width: int = WIDTH) -> str:
    return f"<rect x='{left}' y='{TOP}' width='{width}' height='{HEIGHT}' fill='{colour}'/>"


def _arrow(begin: int, end: int, label: str) -> str:
    y, tip = TOP + HEIGHT // 2, end - 6
    return (
        f"<path d='M{begin + 6} {y}H{tip}m-7 -5l7 5l-7 5' fill='none' stroke='{SOURCE}' "
        f"stroke-width='2'/>" + _text((begin + end) // 2, y - 10, label)
    )


def _text(x: int, y: int, text: str, *, weight: str = "normal") -> str:
    return (
        f"<text x='{x}' y='{y}' text-anchor='middle' font-weight='{weight}' "
        f"fill='currentColor'>{escape(_shortened(text))}</text>"
    )


def _shortened(text: str, most: int = 28) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
