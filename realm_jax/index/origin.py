"""Refuses to publish to an index of another corpus, vocabulary or run.

Readers take the newest generation, and older ones are deleted: one generation of another corpus or
run makes an index useless to those who used it.
"""

from collections.abc import Iterator

from realm_jax.corpus.passage_store import PassageStore
from realm_jax.index import generations


def check_corpus(index: str, store: PassageStore) -> None:
  """Checks that the generations of an index are of this corpus and vocabulary.

  Raises:
    ForeignGenerationError: If one is not.
  """
  for manifest in _manifests(index):
    found = f"corpus {manifest.corpus_fingerprint}, vocabulary {manifest.vocabulary_digest}"
    own = f"corpus {store.fingerprint}, vocabulary {store.metadata.vocabulary_digest}"
    if found != own:
      raise generations.ForeignGenerationError(
        f"generation {manifest.generation} in {index} is of {found}; {store.directory} is {own}; "
        "give --index another directory, or delete this one if nobody needs it any more"
      )


def check_run(index: str, *, run: str | None, parameters_digest: str, checkpoint: object) -> None:
  """Checks that the generations of an index were made from checkpoints of this run.

  Args:
    run: The name of the checkpoint's run. Imported checkpoints have none, and are one run if they
      have one passage encoder.
    parameters_digest: The digest of its passage encoder.
    checkpoint: What to call it in the message.

  Raises:
    ForeignGenerationError: If one was not.
  """
  for manifest in _manifests(index):
    same_encoder = manifest.parameters_digest == parameters_digest
    if manifest.run != run or (run is None and not same_encoder):
      raise generations.ForeignGenerationError(
        f"generation {manifest.generation} in {index} is of run {manifest.run} (passage encoder "
        f"{manifest.parameters_digest}), {checkpoint} is of run {run} (passage encoder "
        f"{parameters_digest}); give --index another directory, or let this run take over the "
        "index with --other_runs=accept"
      )


def _manifests(index: str) -> Iterator[generations.Manifest]:
  """Yields the manifests that can be read, the newest first; the others serve nobody."""
  for number in reversed(generations.all_generations(index)):
    try:
      yield generations.read_manifest(index, number)
    except generations.DamagedGenerationError:
      continue
