"""The report stands alone, and its curves lie where their values are."""

import html.parser
import re

import pytest

from realm_jax.web import charts
from realm_jax.web.report_page import ReportView, rendered

HOSTILE = "<script>alert(1)</script>"
ROWS = [
  {
    "step": 10 * i,
    "seconds": 60.0 * i,
    "loss/total": 9.0 - i,
    "retrieval/null_mass": None if i == 2 else 0.5,
    "eval/loss": 8.0 - i,
  }
  for i in range(1, 5)
]
SWAPS = [
  {"step": 0, "generation": 0, "training_step": 0},
  {"step": 20, "generation": 1, "training_step": 10},
]


def test_the_report_shows_everything_and_needs_nothing():
  page = rendered(
    ReportView(
      title=f"run {HOSTILE}",
      rows=ROWS,
      swaps=SWAPS,
      samples=[
        {
          "step": 40,
          "seconds": 1.0,
          "samples/retrieved": "**the &#91;MASK&#93; \\| x** (pound)\n\n| score | passage |\n|---:|"
          f"---|\n| 2.50 | Title: {HOSTILE} |",
        }
      ],
      alarms=[
        {
          "name": "null mass",
          "first_step": 10,
          "last_step": 40,
          "figure": "it is 1",
          "cause": HOSTILE,
        }
      ],
    )
  )
  for part in ("Loss", "Evaluation: loss", "null mass", "2.50", "Step 40"):
    assert part in page
  assert "the [MASK] | x" in page
  assert "<script" not in page and page.count("&lt;script&gt;") == 4
  assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
  html.parser.HTMLParser().feed(page)


def test_a_run_that_has_just_begun_is_reported():
  assert "0 steps" in rendered(ReportView(title="run", rows=[]))
  assert "10 steps" in rendered(ReportView(title="run", rows=ROWS[:1], swaps=SWAPS[:1]))


def test_points_lie_where_their_values_are():
  curve = charts.Curve("<c>", [(0, 0.0), (50, 1.0), (100, 4.0)])
  chart = charts.draw_curves("t & u", [curve], swaps=[50, 999])
  path, dot = re.findall(r'<path d="M ([^"]+)" style="[^"]*stroke: var\(--c0\)', chart)
  points = [tuple(map(float, point.split())) for point in path.split("L")]
  (x0, y0), (x1, y1), (x2, y2) = points
  assert {tuple(map(float, point.split())) for point in dot.split("L")} == {(x2, y2)}
  assert x1 - x0 == pytest.approx(x2 - x1) and 3 * (y0 - y1) == pytest.approx(y1 - y2, abs=1e-3)
  assert y0 > y2
  assert chart.count("stroke-dasharray") == 1 and f'd="M {x1}' in chart
