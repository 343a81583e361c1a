"""Writes the world in the box: documents, training sentences, questions, and an edited copy."""

import os

from realm_jax import object_store
from realm_jax.almanac import world as almanac
from realm_jax.almanac import writing


def make_almanac(
  *,
  output: str,
  seed: int = 0,
  num_invented_entities: int = 6_500,
  held_out_fraction: float = 0.1,
  num_edits: int = 100,
) -> None:
  """Writes `documents`, `training`, `heldout` and `values.jsonl`, and `edited/`, into `output`.

  Args:
    output: directory to write.
    seed: of names, values, wordings and what is held out.
    num_invented_entities: invented towns, ships, stars and the like, two facts each.
    held_out_fraction: share of the invented facts that no training sentence mentions; of the real
      facts it is half.
    num_edits: facts with a new value in `edited/documents.jsonl`, asked for in
      `edited/questions.jsonl`.
  """
  object_store.check_local(output=output)
  world = almanac.make_world(
    seed=seed,
    num_invented_entities=num_invented_entities,
    held_out_fraction=held_out_fraction,
  )
  writing.write_world(world, output)
  edited = almanac.edit(world, seed=seed + 1, num_edits=num_edits)
  writing.write_edits(edited, os.path.join(output, "edited"))
  held_out = sum(fact.held_out for fact in world.facts)
  print(f"{output}: {len(world.facts):,} facts, {held_out:,} of them held out", flush=True)
