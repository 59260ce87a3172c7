"""`python -m benchmarks.plots FIGURES.json… FOLDER`: pictures of what `python -m benchmarks --json` found.

Needs Matplotlib (the dependency group `benchmarks`). Files of several runs are put together; where two have the same
benchmark, the later file counts. The background is light whatever the page's is, so that the pictures read in dark
mode, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_GREY, _PAPER = "#5f5e5b", "#ffffff"
_COLOURS = {
    "native": "#787774",
    "consumers only, one stream": "#c9b458",
    "nats-bridge": "#0b6e99",
    "nats-bridge, a stream each": "#0b6e99",
    "nats-bridge, at least once": "#63a4c4",
    "nats-bridge, one stream": "#63a4c4",
    "nats-bridge, catching up": "#9065b0",
    "nats-bridge, target far": "#0b6e99",
    "nats-bridge, source far": "#63a4c4",
    "nats.go": "#448361",
    "stream-replicator": "#448361",
    "nats-py": "#d9730d",
}
_Series = Mapping[str, Mapping[float, Mapping[str, float]]]
"""By the series' name and the place on the axis: what was measured."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: `files`, `folder`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.plots",
        description="Draw what `python -m benchmarks --json FILE` found.",
        epilog="Example: python -m benchmarks sizes --json found.json; python -m benchmarks.plots found.json pictures",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="figures; of several runs is fine")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the pictures go, as SVG")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Draw; return 0, or 2 without figures."""
    options = arguments(given)
    try:
        found = merged(json.loads(file.read_text("utf-8")) for file in options.files)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"plots: {error}\n")
        return 2
    for file in draw_all(found, options.folder):
        print(file)
    return 0


def merged(runs: Any) -> dict[str, Any]:
    """Several runs as one; the environment is that of the first.

    Raises:
        ValueError: they were not made with the same versions on the same machine.
    """
    runs = list(runs)
    same = [{name: run["environment"][name] for name in ("nats-server", "python", "machine", "cores")} for run in runs]
    if any(each != same[0] for each in same):
        raise ValueError(f"these runs do not belong together: {', '.join(map(str, same))}")
    benchmarks: dict[str, Any] = {}
    for run in runs:
        benchmarks |= run["benchmarks"]
    return {"environment": runs[0]["environment"], "benchmarks": benchmarks}


def draw_all(found: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw every picture whose benchmark was run; the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "nats-bridge", "font.family": "DejaVu Sans", "font.size": 10}
    folder.mkdir(parents=True, exist_ok=True)
    environment = found["environment"]
    caption = (
        f"{environment['date']}; nats-server {environment['nats-server']}, nats-bridge {environment['nats-bridge']},"
        f" nats-py {environment['nats-py']}, nats.go {environment.get('nats.go', '-')}, Python {environment['python']};"
        f" {environment['machine']},"
        f" {environment['cores']} cores"
    )
    files = []
    for name, benchmark, draw in _PICTURES:
        points = found["benchmarks"].get(benchmark, {}).get("points")
        if points:
            picture = draw(_series(points))
            picture.supxlabel(caption, fontsize=7.5, color=_GREY)
            files.append(folder / f"{name}.svg")
            picture.savefig(files[-1], facecolor=_PAPER, metadata={"Date": None})
    return files


def _series(points: Sequence[Mapping[str, Any]]) -> _Series:
    found: dict[str, dict[float, Mapping[str, float]]] = {}
    for point in points:
        found.setdefault(point["series"], {})[point["at"]] = point["values"]
    return found


def _colour(series: str) -> str:
    return _COLOURS.get(series) or next(colour for name, colour in _COLOURS.items() if series.startswith(name))


def _panels(count: int, title: str, *, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    from matplotlib import pyplot

    picture, axes = pyplot.subplots(1, count, figsize=(9.5, height), layout="constrained", squeeze=False)
    picture.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    for each in axes[0]:
        each.grid(visible=True, axis="y", color="#e8e8e8")
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
    return picture, list(axes[0])


def _lines(axes: Axes, series: _Series, value: Callable[[str, float], float | None], names: Sequence[str] = ()) -> None:
    """One line per series."""
    for name in names or series:
        found = [(at, value(name, at)) for at in sorted(series.get(name, {}))]
        known = [(at, figure) for at, figure in found if figure is not None]
        if known:
            axes.plot(*zip(*known, strict=True), "o-", color=_colour(name), linewidth=2, markersize=5, label=name)


def _sizes_axis(axes: Axes, sizes: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), [f"{size / 1024:.0f} KiB" if size >= 1024 else f"{size:.0f} B" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("payload")


def _short(count: float) -> str:
    for size, unit in ((1_000_000, " million"), (1_000, ",000")):
        if count >= size:
            return f"{count / size:.0f}{unit}"
    return f"{count:.0f}"


def _legend(where: Axes, axes: Axes) -> None:
    """Add the legend of `axes` to the panel that has space."""
    where.legend(*axes.get_legend_handles_labels(), loc="best", fontsize=8.5, framealpha=0.8, edgecolor="none")


def _log_ticks(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _counts_axis(axes: Axes, counts: Sequence[float], what: str) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(counts), [_short(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel(what)


_ARMS = ("nats-bridge", "nats-bridge, at least once", "nats-py, ordered consumer")


def _throughput_by_size(series: _Series) -> Figure:
    picture, (ratio, rate) = _panels(2, "Live republish against message size")
    native = series["native"]
    _lines(ratio, series, lambda name, at: series[name][at]["rate"] / native[at]["rate"], _ARMS)
    ratio.axhline(1.0, color=_colour("native"), linewidth=2, label="native republish")
    ratio.axhline(0.9, color=_GREY, linewidth=1, linestyle=":", label="0.9 (wanted)")
    ratio.set_ylim(bottom=0)
    ratio.set_title("throughput, native = 1 (higher is better)", loc="left", fontsize=10)
    _lines(rate, series, lambda name, at: series[name][at]["rate"] * at / 1e6, ("native", *_ARMS))
    _log_ticks(rate)
    rate.set_title("payload, MB/s", loc="left", fontsize=10)
    _legend(rate, ratio)
    for axes in (ratio, rate):
        _sizes_axis(axes, sorted(native))
    return picture


def _cpu_by_size(series: _Series) -> Figure:
    picture, (program, whole) = _panels(2, "CPU per message against message size, live republish")
    names = ("nats-bridge", "nats-bridge, at least once", "nats-py, ordered consumer")
    _lines(program, series, lambda name, at: series[name][at].get("cpu"), names)
    program.set_title("of the program next to the server, µs (lower is better)", loc="left", fontsize=10)
    whole_names = ("native", *names)
    _lines(
        whole, series, lambda name, at: series[name][at].get("cpu", 0.0) + series[name][at]["server_cpu"], whole_names
    )
    whole.set_title("of server and program together, µs", loc="left", fontsize=10)
    _legend(whole, whole)
    for axes in (program, whole):
        _log_ticks(axes)
        axes.grid(visible=True, which="major", color="#e8e8e8")
        _sizes_axis(axes, sorted(series["native"]))
    return picture


def _against(series: _Series, title: str, what: str, name: str, unit: str, size: float, label: str) -> Figure:
    """Rates, and another value of the program, against a number of something."""
    picture, (rate, other) = _panels(2, title)
    _lines(rate, series, lambda each, at: series[each][at]["rate"] / 1000)
    rate.set_title("thousand messages/s (higher is better)", loc="left", fontsize=10)
    _legend(rate, rate)
    _lines(other, series, lambda each, at: series[each][at][name] / size if name in series[each][at] else None)
    other.set_title(f"{label}, {unit} (lower is better)", loc="left", fontsize=10)
    for axes in (rate, other):
        axes.set_ylim(bottom=0)
        _counts_axis(axes, sorted(series["native"]), what)
    return picture


def _subjects(series: _Series) -> Figure:
    title = "Live republish against the number of distinct subjects, 128-byte messages"
    return _against(series, title, "subjects", "peak", "MB", 1e6, "most memory held by the program")


def _rules(series: _Series) -> Figure:
    title = "Live republish against the number of rules in one sidecar, 128-byte messages"
    return _against(series, title, "rules", "cpu", "µs per message", 1, "CPU of the sidecar")


def _bars(axes: Axes, title: str, found: Sequence[tuple[str, float]]) -> None:
    """Rates in thousand messages/s by name, the first on top."""
    names, rates = zip(*reversed(found), strict=True)
    bars = axes.barh([name.replace(", ", ",\n", 1) for name in names], rates, color=[_colour(name) for name in names])
    axes.bar_label(bars, [f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}" for rate in rates], padding=3, fontsize=8)
    axes.grid(visible=False)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(x=0.18)


_WAYS = ("republishing live", "copying what is stored", "copying live")


def _peers(series: _Series) -> Figure:
    picture, panels = _panels(len(_WAYS), "Next to peers: thousand messages/s, 128-byte messages", height=3.6)
    for place, (axes, way) in enumerate(zip(panels, _WAYS, strict=True)):
        _bars(axes, way, [(name, at[place]["rate"] / 1000) for name, at in series.items() if place in at])
    return picture


def _distance(series: _Series) -> Figure:
    picture, (rate, whole) = _panels(2, "Copying against distance, 128-byte messages, file streams")
    _lines(rate, series, lambda name, at: series[name][at]["rate"] / 1000)
    rate.set_title("thousand messages/s (higher is better)", loc="left", fontsize=10)
    _legend(rate, rate)
    _lines(whole, series, lambda name, at: series[name][at]["rate"] / series[name][min(series[name])]["rate"])
    whole.axhline(0.8, color=_GREY, linewidth=1, linestyle=":")
    whole.set_title("without distance = 1 (0.8 wanted)", loc="left", fontsize=10)
    for axes in (rate, whole):
        axes.set_ylim(bottom=0)
        axes.set_xticks(sorted(series["native"]))
        axes.set_xlabel("round trip, ms")
    return picture


def _replicated(series: _Series) -> Figure:
    places = sorted(series["native"])
    picture, panels = _panels(len(places), "Three replicas to three replicas, with a transform", height=2.6)
    for axes, place in zip(panels, places, strict=True):
        title = f"nats-server {_version(place)}, thousand messages/s"
        _bars(axes, title, [(name, at[place]["rate"] / 1000) for name, at in series.items() if at])
    return picture


def _version(place: float) -> str:
    """A version that stands on an axis as a number, such as 21027 for 2.10.27."""
    number = int(place)
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"


_PICTURES: tuple[tuple[str, str, Callable[[_Series], Figure]], ...] = (
    ("throughput-by-size", "sizes", _throughput_by_size),
    ("cpu-by-size", "sizes", _cpu_by_size),
    ("subjects", "subjects", _subjects),
    ("rules", "rules", _rules),
    ("peers", "peers", _peers),
    ("distance", "distance", _distance),
    ("replicated", "replicated", _replicated),
)


if __name__ == "__main__":
    sys.exit(main())
