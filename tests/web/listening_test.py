"""Names that a server on a loopback address answers to."""

import pytest

pytest.importorskip("fastapi")

from realm_jax.web.listening import LimitSettings


@pytest.mark.parametrize(
  ("host", "name"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]"), ("localhost", "localhost")]
)
def test_the_address_that_is_printed_is_answered(host, name):
  assert name in LimitSettings().with_local_names(host).hosts


def test_other_hosts_are_named_by_who_serves():
  assert not LimitSettings().with_local_names("0.0.0.0").hosts
