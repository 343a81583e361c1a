"""The report stands alone, and its curves lie where their values are."""

import html.parser
import re

import pytest

from realm_jax.inspector import charts
from realm_jax.inspector.report_page import ReportView, rendered

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
      generations=[
        {"generation": 0, "training_step": 0, "scorecard": {"recall@5": 0.5}},
        {"generation": 1, "training_step": 10, "scorecard": {"recall@5": 0.75, "drift": 0.01}},
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
  for part in ("Loss", "Evaluation: loss", "null mass", "drift", "0.75", "2.50", "Step 40"):
    assert part in page
  assert "the [MASK] | x" in page
  assert "<script" not in page and page.count("&lt;script&gt;") == 4
  assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
  html.parser.HTMLParser().feed(page)


def test_a_run_that_has_just_begun_is_reported():
  assert "0 steps" in rendered(ReportView(title="run", rows=[]))
  assert "10 steps" in rendered(ReportView(title="run", rows=ROWS[:1], swaps=SWAPS[:1]))


def test_points_lie_where_their_values_are():
  chart = charts.drawn("t", [charts.Curve("c", [(0, 0.0), (50, 1.0), (100, 2.0)])], swaps=[50, 999])
  points = [
    tuple(map(float, p.split(","))) for p in re.search(r'points="([^"]+)"', chart)[1].split()
  ]
  (x0, y0), (x1, y1), (x2, y2) = points
  assert x1 - x0 == pytest.approx(x2 - x1) and y0 - y1 == pytest.approx(y1 - y2)
  assert y0 > y2
  assert chart.count('class="swap"') == 1 and f'x1="{x1}"' in chart
  assert charts.drawn("t", [charts.Curve("c", [])], swaps=[]) is None


@pytest.mark.parametrize(
  ("low", "high", "ticks"),
  [
    (0.0, 1.0, [0, 0.25, 0.5, 0.75, 1]),
    (2.3, 9.1, [2, 4, 6, 8, 10]),
    (-0.3, 0.4, [-0.4, -0.2, 0, 0.2, 0.4]),
    (5.0, 5.0, [2, 4, 6, 8]),
    (0.0, 0.0, [-0.5, -0.25, 0, 0.25, 0.5]),
  ],
)
def test_ticks_are_round_and_reach_over_the_values(low, high, ticks):
  assert charts.nice_ticks(low, high) == pytest.approx(ticks)
