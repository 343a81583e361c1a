from realm_jax.training import train_loop


def hosts(*searches):
  return [{"data": 0.1, "search": search, "gather": 0.0} for search in searches]


def test_a_host_that_holds_up_the_others_is_named_with_its_reason():
  figures, line = train_loop.slowest(hosts(0.2, 0.3, 0.9), step_seconds=2.0)
  assert figures == {"hosts/slowest": 2, "hosts/slowest_seconds": 1.0, "hosts/median_seconds": 0.4}
  assert line == (
    "host 2 is slow, 1.000 s a step where the median host takes 0.400 s; most of it is search, "
    "0.900 s instead of 0.300 s"
  )


def test_a_difference_that_costs_less_than_a_tenth_of_a_step_is_not_worth_a_line():
  figures, line = train_loop.slowest(hosts(0.2, 0.2, 0.3), step_seconds=2.0)
  assert figures["hosts/slowest"] == 2 and line is None
