"""Loads the generations of an index that match a model."""

import dataclasses

from realm_jax.checkpoints.orbax_files import Run
from realm_jax.checkpoints.saved_models import ModelDescription
from realm_jax.index import assembly, generations
from realm_jax.index.searcher import SearcherFactory
from realm_jax.retrieval.index_refresher import LoadedGeneration, OtherRuns

# A training loads larger indexes in a subprocess: ScaNN holds the interpreter lock for 50 ms.
_MAX_PASSAGES_IN_PROCESS = 50_000


@dataclasses.dataclass(kw_only=True)
class PublishedGenerations:
  """The generations in a directory, checked against a model.

  Attributes:
    description: The model that searches them.
    searcher: Makes the searcher of a generation's embeddings; None searches it as it was built.
    spread: Whether each process loads only its share of an index, see `SpreadSearcher`.
    with_embeddings: Whether to load embeddings in addition to the searcher.
    run: The run that trains the model; None outside training.
    other_runs: Whether to "refuse" or "accept" generations of other runs. The steps of accepted
      ones count as 0, so that staleness is counted from the beginning of this run.
  """

  index: str
  description: ModelDescription
  searcher: SearcherFactory | None = None
  spread: bool = False
  with_embeddings: bool = False
  run: Run | None = None
  other_runs: OtherRuns = "refuse"

  def newest(self) -> int | None:
    return generations.newest(self.index)

  def load(self, generation: int) -> LoadedGeneration:
    """Loads a generation for searching.

    Raises:
      ValueError: If its corpus, width or vocabulary differs.
      ForeignGenerationError: If it belongs to another run.
      DamagedGenerationError: If it differs from what was published.
    """
    manifest = generations.read_manifest(self.index, generation)
    generations.check_compatible(
      manifest,
      corpus_fingerprint=self.description.corpus_fingerprint,
      embedding_size=self.description.dual_encoder.embedding_size,
      vocabulary_digest=self.description.vocabulary_digest,
    )
    foreign = self.run is not None and _foreign(manifest, self.run)
    if foreign and self.other_runs == "refuse":
      raise generations.ForeignGenerationError(
        f"{self.index} has it from step {manifest.training_step} of {foreign}, "
        "keep it with --generation, or set --other_runs=accept"
      )
    embeddings_NxE = None
    if self.with_embeddings:
      embeddings_NxE = assembly.load_embeddings(self.index, generation)
    searcher = assembly.load_searcher(
      self.index,
      generation,
      make=self.searcher,
      spread=self.spread,
      in_subprocess=self.run is not None and manifest.num_passages > _MAX_PASSAGES_IN_PROCESS,
    )
    return LoadedGeneration(
      generation=generation,
      training_step=0 if foreign else manifest.training_step,
      created=manifest.created,
      searcher=searcher,
      embeddings_NxE=embeddings_NxE,
    )


def _foreign(manifest: generations.Manifest, run: Run) -> str:
  """Returns why a generation belongs to another run, and the remedy; empty if it does not."""
  rebuild = f"build one with `realm build_index --checkpoints={run.checkpoints}`"
  if manifest.run != run.name:
    return f"run {manifest.run}, and this is run {run.name}; {rebuild}"
  if not run.has_reached(manifest.training_step):
    return f"run {manifest.run}, which has no checkpoint of that step; {rebuild}"
  return ""


def generation_made_by(parameters_digest: str, index: str, *, generation: int | None = None) -> int:
  """Returns the generation to stay with, which must come from the frozen passage encoder."""
  generation = generations.resolve(index, generation)
  manifest = generations.read_manifest(index, generation)
  if manifest.parameters_digest != parameters_digest:
    raise ValueError(
      f"generation {generation} in {index} was built with another passage encoder "
      f"({manifest.parameters_digest}, not {parameters_digest}), at step {manifest.training_step}; "
      "index the retriever's checkpoint with `realm build_index`, or choose its generation"
    )
  return generation
