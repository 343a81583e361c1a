"""Writes the built-in world: documents, training sentences, questions, and an edited copy.

Also a job, `realm realm_jax/demo/make_almanac.py --output=DIR`.
"""

import os

from realm_jax.demo import world as almanac
from realm_jax.demo import writing
from realm_jax.foundations import atomic_files, object_store


def make_almanac(
  *,
  output: str,
  seed: int = 0,
  num_invented_entities: int = 6_500,
  num_edits: int = 100,
) -> None:
  """Writes `documents`, `training`, `heldout` and `values.jsonl`, and `edited/`, into `output`.

  Args:
    output: Directory to write; replaced as a whole when finished.
    seed: Seeds names, values, wordings and the held-out facts.
    num_invented_entities: Invented towns, ships, stars and the like, with two facts each.
    num_edits: Number of facts with a new value in `edited/documents.jsonl`, asked for in
      `edited/questions.jsonl`.
  """
  object_store.check_local(output=output)
  writing.ALMANAC.check(output)
  world = almanac.make_world(seed=seed, num_invented_entities=num_invented_entities)
  edited = almanac.edit(world, seed=seed + 1, num_edits=num_edits)
  with atomic_files.new_directory(output, kind=writing.ALMANAC) as directory:
    writing.write_world(world, directory)
    writing.write_edits(edited, os.path.join(directory, writing.EDITED))
  held_out = sum(fact.held_out for fact in world.facts)
  print(f"{output}: {len(world.facts):,} facts, {held_out:,} of them held out", flush=True)
