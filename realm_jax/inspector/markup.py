"""HTML in which nothing is unescaped by accident: elements are `Markup`, all other text is text."""

import html
import math
from collections.abc import Mapping

_VOID = {"input", "meta", "link", "br", "rect", "circle", "line", "polyline", "path"}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Markup(str):
  """HTML that stands as it is."""


Child = Markup | str | int | float | None
Attributes = Mapping[str, str | int | float | bool | None]


def element(tag: str, attributes: Attributes | None = None, *children: Child) -> Markup:
  """Makes an element; children that are not `Markup` are escaped, None is left out.

  Args:
    tag: its name.
    attributes: True stands alone, False and None are left out, all else is escaped.
    *children: what is inside.
  """
  parts = [f"<{tag}"]
  for name, value in (attributes or {}).items():
    if value is True:
      parts.append(f" {name}")
    elif value is not None and value is not False:
      parts.append(f' {name}="{html.escape(str(value))}"')
  if tag in _VOID:
    return Markup("".join(parts) + ("/>" if tag not in ("input", "meta", "link", "br") else ">"))
  return Markup("".join(parts) + ">" + join(*children) + f"</{tag}>")


def join(*children: Child) -> Markup:
  """Puts children one after the other."""
  return Markup("".join(_safe(child) for child in children if child is not None))


def _safe(child: Child) -> str:
  return child if isinstance(child, Markup) else html.escape(str(child))


def document(*, title: str, head: Markup, body: Markup) -> str:
  """Returns a whole page."""
  return "<!DOCTYPE html>\n" + element(
    "html",
    {"lang": "en"},
    element(
      "head",
      None,
      element("meta", {"charset": "utf-8"}),
      element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
      element("meta", {"name": "color-scheme", "content": "light dark"}),
      element("title", None, title),
      head,
    ),
    body,
  )


def hidden(name: str, value: str | int) -> Markup:
  """Makes a field of a form that is not shown."""
  return element("input", {"type": "hidden", "name": name, "value": value})


def probability(value: float) -> str:
  """Writes a probability: 0.911, 4.8 × 10⁻⁷."""
  if value == 0 or not math.isfinite(value):
    return "0"
  if value >= 0.0005:
    return f"{value:.3f}"
  exponent = math.floor(math.log10(value))
  mantissa = f"{value / 10**exponent:.1f}"
  if mantissa == "10.0":
    mantissa, exponent = "1.0", exponent + 1
  return f"{mantissa} × 10{str(exponent).translate(_SUPERSCRIPTS)}"


def signed(value: float, *, digits: int = 2) -> str:
  """Writes a number with its sign."""
  return f"{value:+.{digits}f}".replace("-", "−")


def bar(share: float, *, kind: str) -> Markup:
  """Draws a share of one as a bar; the number stands beside it, so readers of screens pass it over.

  Args:
    share: from 0 to 1.
    kind: class of its colour.
  """
  width = round(100 * min(max(share, 0.0), 1.0), 2)
  return element(
    "svg",
    {
      "class": f"bar {kind}",
      "viewBox": "0 0 100 8",
      "preserveAspectRatio": "none",
      "aria-hidden": "true",
      "focusable": "false",
    },
    element("rect", {"class": "track", "width": 100, "height": 8}),
    element("rect", {"class": "fill", "width": width, "height": 8}),
  )


def highlighted(text: str, spans: tuple[tuple[int, int], ...]) -> Markup:
  """Marks spans of characters in a text."""
  parts, last = [], 0
  for start, limit in sorted(spans):
    if start >= last:
      parts += [text[last:start], element("mark", None, text[start:limit])]
      last = limit
  return join(*parts, text[last:])
