"""Draws the figures of `bench peers` or `bench pack`: python plot.py FIGURES.json DIR

makes DIR/FIGURES.png and .svg, and for the loaders' first panel alone FIGURES-rate.png and
.svg: the same bytes for the same figures."""

import json
import os
import sys

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams.update(
    {"svg.hashsalt": "shardify", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 10}
)
import matplotlib.pyplot as plt

OURS, PEER = ("#c2410c", "#fdba74"), ("#475569", "#cbd5e1")


def number(x):
    if x >= 100:
        return f"{x:,.0f}"
    return f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def panel(axes, title, series, names, ours, show_names):
    """Bars of each name: series are (label, {name: value}), of which the first is darker."""
    height = 0.8 / len(series)
    most = max((v for _, values in series for v in values.values()), default=1)
    for i, (label, values) in enumerate(series):
        for row, name in enumerate(names):
            at = row + (i - (len(series) - 1) / 2) * height
            if name not in values:
                axes.text(most * 0.01, at, "failed", va="center", fontsize=8, color="#b91c1c")
                continue
            colour = (OURS if name in ours else PEER)[i if len(series) > 1 else 0]
            axes.barh(at, values[name], height * 0.92, color=colour)
            axes.text(values[name] + most * 0.015, at, number(values[name]), va="center", fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_yticks(range(len(names)), names if show_names else [])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, most * 1.22)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(4))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def draw(panels, names, ours, title, legend):
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(4 * columns + 3, lines * (0.34 * len(names) + 0.8) + 0.7),
        layout="constrained",
        squeeze=False,
    )
    for i, (name, series) in enumerate(panels):
        axes = grid[i // columns][i % columns]
        panel(axes, name, series, names, ours, i % columns == 0)
        for tick in axes.get_yticklabels():
            if tick.get_text() in ours:
                tick.set_color(OURS[0])
                tick.set_fontweight("bold")
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    if legend:
        patch = matplotlib.patches.Patch
        handles = [patch(color=pair[i]) for i in range(len(legend)) for pair in (OURS, PEER)]
        labels = [f"{who}, {label}" for label in legend for who in ("ours", "others")]
        figure.legend(handles, labels, loc="outside lower right", ncols=len(handles), fontsize=8, frameon=False)
    return figure


def peers(report):
    # The whole of what is in the table but for our own with AVX-512 off.
    rows = [r for r in report["loading"] if "AVX-512 off" not in r["name"]]
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))

    def series(field, scale=1.0):
        return [(d, {r["name"]: r[field] * scale for r in rows if r["dtype"] == d and not r.get("error")}) for d in dtypes]

    rates = series("images_per_second")
    names = list(dict.fromkeys(r["name"] for r in rows))
    names.sort(key=lambda name: -rates[0][1].get(name, 0))
    panels = [
        ("images/s (more is better)", rates),
        ("CPU seconds per 1,000 images (less)", series("cpu_seconds_per_1000")),
        ("peak memory, MB (PSS; less)", series("peak_pss", 1e-6)),
        ("first batch, s (less)", series("first_batch_seconds")),
    ]
    ours = {r["name"] for r in rows if r.get("ours")}
    title = "Photographs to batches of 256 random crops, 224 × 224, on two cores"
    return panels, names, ours, title, ["uint8", "float32, normalised"]


def pack(report):
    rows = report["rows"]
    done = [r for r in rows if not r.get("error")]
    panels = [
        ("images/s (more is better)", [("", {r["name"]: report["files"] / r["median_seconds"] for r in done})]),
        ("CPU seconds of the process (less)", [("", {r["name"]: r["median_cpu_seconds"] for r in done})]),
        ("peak memory, MB (less)", [("", {r["name"]: (r.get("peak_pss") or r["peak_rss"]) / 1e6 for r in done})]),
        ("output, MB", [("", {r["name"]: r["output_bytes"] / 1e6 for r in done})]),
    ]
    names = sorted((r["name"] for r in rows), key=lambda name: -panels[0][1][0][1].get(name, 0))
    ours = {name for name in names if name.startswith("shardify")}
    return panels, names, ours, f"Packing {report['files']:,} photographs", []


def main():
    figures, folder = sys.argv[1:]
    with open(figures, encoding="utf-8") as file:
        report = json.load(file)
    panels, *rest = peers(report) if report.get("loading") else pack(report)
    out = os.path.join(folder, os.path.basename(figures).removesuffix(".json"))
    for suffix, chosen in [("", panels), *([("-rate", panels[:1])] if report.get("loading") else [])]:
        figure = draw(chosen, *rest)
        figure.savefig(out + suffix + ".png", dpi=120, metadata={"Software": None})
        figure.savefig(out + suffix + ".svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
