"""The table of index builders names the smallest that keeps the index fresh enough, or says why."""

from realm_jax.planning import report
from realm_jax.planning.generation_costs import Times, staleness


def row(name, *, embed):
  times = Times(embed=embed, build=10.0, load=20.0)
  return name, times, staleness(times, step_seconds=1.0, checkpoint_every=100)


ROWS = [row("v3-8, 4 chips", embed=800.0), row("v3-16, 8 chips", embed=400.0)]


def test_the_last_builder_is_named_if_it_reaches_the_target():
  *_, builder, conclusion = report.builder_lines(ROWS, target=430, least_seconds=20.0)
  assert builder.split() == ["v3-16,", "8", "chips", "7", "min", "10.0", "s", "430"]
  assert conclusion == "  v3-16, 8 chips is the smallest that stays within --target_staleness=430"


def test_a_target_that_no_builder_reaches_is_told_with_what_remains():
  conclusion = report.builder_lines(ROWS, target=429, least_seconds=20.0)[-1]
  told = "none of them stays within --target_staleness=429; loading alone takes 20.0 s"
  assert conclusion.strip() == told
