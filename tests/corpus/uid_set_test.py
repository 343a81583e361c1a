import os
import random

import pytest

from realm_jax.corpus.uid_set import UidSet


@pytest.mark.parametrize(("newest", "sorted_in_memory"), [(1000, 1000), (7, 1000), (7, 20), (1, 1)])
def test_every_uid_is_new_once(tmp_path, newest, sorted_in_memory):
  draw = random.Random(0)
  uids = UidSet(tmp_path, newest=newest, sorted_in_memory=sorted_in_memory)
  seen = set()
  for _ in range(60):
    wanted = [draw.choice([draw.randrange(200), draw.randrange(1, 2**63)]) for _ in range(9)]
    expected = []
    for uid in wanted:
      expected.append(uid not in seen)
      seen.add(uid)
    assert uids.add(wanted) == expected
  assert (len(os.listdir(tmp_path)) > 2) == (sorted_in_memory < 100)
