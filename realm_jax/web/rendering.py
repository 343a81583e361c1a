"""Renders the templates of the pages; text is escaped, and missing names are errors."""

import dataclasses
import functools
import json
import math
from collections.abc import Sequence

import jinja2
from markupsafe import Markup, escape

from realm_jax.text.terminal import direction
from realm_jax.text.wordpieces import MASK

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
  """A query to try; `answer` is the correct answer, empty if unknown."""

  text: str
  answer: str = ""


def render(template: str, **context: object) -> str:
  """Returns the page that a template in `templates/` makes of its variables."""
  return environment().get_template(template).render(context)


@functools.cache
def environment() -> jinja2.Environment:
  """Returns the environment of all templates."""
  made = jinja2.Environment(
    loader=jinja2.PackageLoader("realm_jax.web"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  made.filters.update(
    direction=lambda text: direction(text.replace(MASK, "")),
    highlighted=highlighted,
    json=functools.partial(json.dumps, indent=2),
    probability=probability,
    signed=signed,
  )
  return made


def probability(value: float) -> str:
  """Formats a probability: 0.911, 4.8 × 10⁻⁷."""
  if value == 0 or not math.isfinite(value):
    return "0"
  if value >= 0.0005:
    return f"{value:.3f}"
  mantissa, exponent = f"{value:.1e}".split("e")
  return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}"


def signed(value: float, *, digits: int = 2) -> str:
  """Formats a number with its sign."""
  return f"{value:+.{digits}f}".replace("-", "−")


def highlighted(text: str, spans: Sequence[tuple[int, int]]) -> Markup:
  """Marks character spans in a text, except those that overlap an earlier one."""
  parts, last = [], 0
  for start, limit in sorted(spans):
    if start >= last:
      parts += [escape(text[last:start]), Markup("<mark>{}</mark>").format(text[start:limit])]
      last = limit
  return Markup("").join([*parts, text[last:]])
