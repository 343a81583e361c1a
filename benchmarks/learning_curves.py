"""Draws figures over training steps, from several runs side by side.

Each panel is a title, a file of JSON Lines with `step`, such as `metrics.jsonl` of a run or
`evaluations.jsonl`, and the names of figures in it:

  python benchmarks/learning_curves.py --output=curves.png \\
    'span accuracy|runs/raw/reading/metrics.jsonl|eval/span_accuracy,eval/null_span_accuracy'
"""

import argparse
import json
from pathlib import Path

import matplotlib.figure


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
  parser.add_argument("panels", nargs="+", metavar="TITLE|FILE|FIGURE,...")
  parser.add_argument("--output", required=True)
  flags = parser.parse_args()
  figure = matplotlib.figure.Figure(figsize=(4 * len(flags.panels), 3), layout="constrained")
  for axes, panel in zip(
    figure.subplots(1, len(flags.panels), squeeze=False).flat, flags.panels, strict=True
  ):
    title, path, names = panel.split("|")
    rows = [json.loads(line) for line in Path(path).open()]
    for name in names.split(","):
      points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
      if not points:
        raise SystemExit(f"{path} has no {name}")
      axes.plot(*zip(*points, strict=True), label=name, marker="." if len(points) < 40 else None)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=8)
  figure.savefig(flags.output, dpi=110)


if __name__ == "__main__":
  main()
