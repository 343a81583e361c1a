"""Charts over training steps, drawn by matplotlib as SVG to embed in a page.

Lines and text take their colours from the page's CSS variables, for light and dark mode.
"""

import dataclasses
import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.figure import Figure

# Placeholders that `_svg` replaces with the page's variables.
_CURVES = ("#000001", "#000002", "#000003")
_SOFT, _RULE = "#000004", "#000005"
_VARIABLES = {
  **{name: f"--c{i}" for i, name in enumerate(_CURVES)},
  _SOFT: "--soft",
  _RULE: "--rule",
}
_STYLE: Any = {
  "axes.edgecolor": "none",
  "font.size": 8,
  "grid.color": _RULE,
  "lines.linewidth": 1.6,
  "lines.solid_capstyle": "round",
  "svg.fonttype": "none",
  "xtick.labelcolor": _SOFT,
  "xtick.major.size": 0,
  "ytick.labelcolor": _SOFT,
  "ytick.major.size": 0,
}


@dataclasses.dataclass(frozen=True)
class Curve:
  """Points `(step, value)` by step."""

  name: str
  points: Sequence[tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class GenerationSpan:
  """When an index generation was in use.

  Attributes:
    made: Training step of its embeddings.
    start: Step at which it was swapped in.
    end: Step at which the next one was swapped in, or the last step so far.
  """

  generation: int
  made: float
  start: float
  end: float


def draw_curves(title: str, curves: Sequence[Curve], *, swaps: Sequence[float]) -> Markup:
  """Draws at most three curves in one chart, and a dotted line at each swap."""
  with matplotlib.rc_context(_STYLE):
    figure, axes = _frame(4.2, 1.9)
    for curve, colour in zip(curves, _CURVES, strict=False):
      axes.plot(*zip(*curve.points, strict=True), color=colour, clip_on=False)
      # A line of zero length is a dot, and needs no marker definition.
      end = zip(*[curve.points[-1]] * 2, strict=True)
      axes.plot(*end, color=colour, linewidth=4, clip_on=False)
    first, last = axes.dataLim.intervalx
    for step in swaps:
      if first <= step <= last:
        axes.axvline(step, color=_SOFT, linewidth=0.8, linestyle=(0, (1, 4)), clip_on=False)
    axes.grid(axis="y", clip_on=False)
    axes.locator_params(axis="y", nbins=5)
    return _svg(
      figure,
      title,
      "; ".join(f"{c.name} from {c.points[0][1]:.3g} to {c.points[-1][1]:.3g}" for c in curves),
    )


def draw_timeline(spans: Sequence[GenerationSpan]) -> Markup:
  """Draws when each generation was in use: a thin line while it was built, then a bar."""
  with matplotlib.rc_context(_STYLE):
    figure, axes = _frame(8.6, 0.4 + 0.24 * len(spans))
    for row, span in enumerate(spans):
      axes.plot((span.made, span.start), (row, row), color=_CURVES[2], clip_on=False)
      axes.plot(
        (span.start, span.end),
        (row, row),
        color=_CURVES[0],
        linewidth=8,
        clip_on=False,
        solid_capstyle="butt",
      )
    axes.set_yticks(range(len(spans)), [f"g{span.generation}" for span in spans])
    axes.invert_yaxis()
    return _svg(
      figure,
      "Generations in use by training step",
      "; ".join(
        f"generation {span.generation} of step {span.made:.0f} from step {span.start:.0f} to "
        f"{span.end:.0f}"
        for span in spans
      ),
    )


def _frame(width: float, height: float):
  figure = Figure(figsize=(width, height), layout="constrained")
  figure.patch.set_visible(False)
  axes = figure.add_subplot()
  axes.patch.set_visible(False)
  axes.locator_params(axis="x", nbins=4, integer=True)
  axes.xaxis.set_major_formatter("{x:,.0f}")
  return figure, axes


def _svg(figure: Figure, title: str, description: str) -> Markup:
  """Returns only the `<svg>` element, without ids that would clash within a page."""
  file = io.StringIO()
  figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
  svg = file.getvalue()
  svg = svg[svg.index("<svg") :]
  svg = re.sub(r' (?:id|version|xmlns|xmlns:xlink)="[^"]*"', "", svg)
  svg = re.sub(r' width="[^"]*" height="[^"]*"', ' role="img"', svg, count=1)
  named = f"<title>{escape(title)}</title>\n <desc>{escape(description)}</desc>\n <defs>"
  svg = svg.replace("<defs>", named, 1)
  for colour, variable in _VARIABLES.items():
    svg = svg.replace(colour, f"var({variable})")
  return Markup(svg)
