"""Curves over training steps as SVG, with a mark where a generation was swapped in."""

import dataclasses
import math
from collections.abc import Sequence

from realm_jax.inspector.markup import Markup, element

_WIDTH, _HEIGHT = 420, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 24


@dataclasses.dataclass(frozen=True)
class Curve:
  """Points `(step, value)` by step."""

  name: str
  points: Sequence[tuple[float, float]]


def drawn(title: str, curves: Sequence[Curve], *, swaps: Sequence[float]) -> Markup | None:
  """Draws curves in one frame; None where there is no point.

  Args:
    title: of the frame.
    curves: at most four.
    swaps: steps that are marked.
  """
  curves = [curve for curve in curves if curve.points]
  if not curves:
    return None
  steps = [step for curve in curves for step, _ in curve.points]
  values = [value for curve in curves for _, value in curve.points]
  ticks = nice_ticks(min(values), max(values))
  first, last = min(steps), max(steps)
  low, high = ticks[0], ticks[-1]

  def x(step: float) -> float:
    share = (step - first) / (last - first) if last > first else 0.5
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

  def y(value: float) -> float:
    return round(_TOP + (1 - (value - low) / (high - low)) * (_HEIGHT - _TOP - _BOTTOM), 1)

  parts = []
  for tick in ticks:
    ends = {"x1": _LEFT, "x2": _WIDTH - _RIGHT, "y1": y(tick), "y2": y(tick)}
    parts.append(element("line", {**ends, "class": "grid"}))
    place = {"x": _LEFT - 6, "y": y(tick) + 4, "class": "axis end"}
    parts.append(element("text", place, f"{tick:g}"))
  for step in swaps:
    if first <= step <= last:
      ends = {"x1": x(step), "x2": x(step), "y1": _TOP, "y2": _HEIGHT - _BOTTOM}
      parts.append(element("line", {**ends, "class": "swap"}))
  for step, kind in ((first, "start"), (last, "end")):
    place = {"x": x(step), "y": _HEIGHT - 6, "class": f"axis {kind}"}
    parts.append(element("text", place, f"{step:,.0f}"))
  for colour, curve in enumerate(curves):
    line = " ".join(f"{x(step)},{y(value)}" for step, value in curve.points)
    parts.append(element("polyline", {"points": line, "class": f"curve colour-{colour}"}))
    step, value = curve.points[-1]
    circle = {"cx": x(step), "cy": y(value), "r": 3, "class": f"colour-{colour}"}
    parts.append(element("circle", circle))
  return element(
    "figure",
    {"class": "chart"},
    element("figcaption", None, title),
    element(
      "svg",
      {"viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "role": "img", "aria-label": _spoken(title, curves)},
      *parts,
    ),
    element(
      "ul",
      {"class": "legend"},
      *(
        element(
          "li",
          {"class": f"colour-{colour}"},
          curve.name,
          " ",
          element("b", None, f"{curve.points[-1][1]:.4g}"),
        )
        for colour, curve in enumerate(curves)
      ),
    ),
  )


def nice_ticks(low: float, high: float) -> list[float]:
  """Returns 3 to 6 round numbers that reach over a range."""
  if high <= low:
    low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
  rough = (high - low) / 4
  power = 10 ** math.floor(math.log10(rough))
  step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit >= rough)
  first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
  return [round(tick * step, 12) for tick in range(first, last + 1)]


def _spoken(title: str, curves: Sequence[Curve]) -> str:
  parts = (
    f"{curve.name} from {curve.points[0][1]:.3g} to {curve.points[-1][1]:.3g}" for curve in curves
  )
  return f"{title}: {'; '.join(parts)}"


def timeline(spans: Sequence[tuple[int, float, float, float]]) -> Markup | None:
  """Draws which generation was in use when.

  Args:
    spans: of each generation its number, the training step of its embeddings, and the steps between
      which it was in use.
  """
  if not spans:
    return None
  last = max(limit for *_, limit in spans) or 1
  row, left, width = 24, 34, 860

  def x(step: float) -> float:
    return round(left + step / last * (width - left - 12), 1)

  parts = []
  for number, (generation, made, start, limit) in enumerate(spans):
    y = 8 + row * number
    parts.append(element("text", {"x": 4, "y": y + 12, "class": "axis start"}, f"g{generation}"))
    ends = {"x1": x(made), "x2": x(start), "y1": y + 8, "y2": y + 8}
    parts.append(element("line", {**ends, "class": "making"}))
    parts.append(element("circle", {"cx": x(made), "cy": y + 8, "r": 4, "class": "made"}))
    box = {"x": x(start), "y": y, "width": max(x(limit) - x(start), 2), "height": 16, "rx": 4}
    parts.append(element("rect", {**box, "class": "in-use"}))
  height = 8 + row * len(spans) + 20
  for step, kind in ((0, "start"), (last, "end")):
    place = {"x": x(step), "y": height - 4, "class": f"axis {kind}"}
    parts.append(element("text", place, f"step {step:,.0f}"))
  label = "; ".join(
    f"generation {generation} of step {made:.0f} from step {start:.0f} to {limit:.0f}"
    for generation, made, start, limit in spans
  )
  return element(
    "svg",
    {"viewBox": f"0 0 {width} {height}", "class": "timeline", "role": "img", "aria-label": label},
    *parts,
  )
