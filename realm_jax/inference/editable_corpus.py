"""A knowledge corpus with its index, as edits leave both, and as earlier generations ranked it."""

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from realm_jax.corpus.edits import EditedStore, Edits, WrittenPassage, write_passage
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.datatypes import Tokens
from realm_jax.index.edited_searcher import EditedSearcher
from realm_jax.index.searcher import Searcher
from realm_jax.inference.explanation import GenerationRanking
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.tokenization import WordPieceTokenizer

_EMBEDDINGS_KEPT = 4096  # of passages written by hand
_RANKED = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastGeneration:
  """An earlier generation, and the parameters that queries were embedded with then.

  Attributes:
    generation: its number.
    training_step: step of the passage embeddings.
    searcher: searches it.
    params: of the query encoder at that step; None where its checkpoint is gone.
  """

  generation: int
  training_step: int
  searcher: Searcher
  params: dict | None


class EditableCorpus:
  """Searches a corpus over which edits are laid.

  Args:
    store: the corpus.
    searcher: of one generation.
    tokenizer: of the corpus.
    embed_passage: embeds `Tokens` `[R, P]` as the generation's passages were, to `[R, E]`.
    passage_length: P.
    past: earlier generations, oldest first.
  """

  def __init__(
    self,
    *,
    store: PassageStore,
    searcher: Searcher,
    tokenizer: WordPieceTokenizer,
    embed_passage: Callable[[Tokens], np.ndarray],
    passage_length: int,
    past: Sequence[PastGeneration] = (),
  ):
    self.store = store
    self.generation = searcher.generation
    self._searcher = searcher
    self._tokenizer = tokenizer
    self._embed_passage = embed_passage
    self._passage_length = passage_length
    self._past = tuple(past)
    self._embeddings: OrderedDict[tuple[str, str], np.ndarray] = OrderedDict()
    self._lock = threading.Lock()

  def write(self, title: str, text: str) -> WrittenPassage:
    """Cuts a passage into wordpieces.

    Raises:
      ValueError: if it is empty or too long for this corpus.
    """
    return write_passage(
      title,
      text,
      tokenizer=self._tokenizer,
      max_passage_length=min(self.store.metadata.max_passage_length, self._passage_length),
    )

  def view(self, edits: Edits) -> EditedStore:
    """Returns the corpus as the edits leave it."""
    return EditedStore(self.store, edits)

  def searcher(self, edits: Edits) -> Searcher:
    """Returns a searcher of the corpus as the edits leave it."""
    if not edits:
      return self._searcher
    written = self.embeddings(edits)
    return EditedSearcher(
      self._searcher,
      hidden=[i for i in edits.passages if i < len(self.store)],
      ids=list(written),
      embeddings=np.stack([*written.values()]) if written else np.zeros((0, 1), np.float32),
    )

  def embeddings(self, edits: Edits) -> dict[int, np.ndarray]:
    """Returns the embeddings `[E]` of what was changed or added, by id."""
    return {passage_id: self._embedding(passage) for passage_id, passage in edits.written()}

  def rankings(self, embed_query: Callable[[dict | None], np.ndarray]) -> tuple:
    """Returns the `GenerationRanking` of each earlier generation.

    Args:
      embed_query: embeds the query, `[1, E]`, with the parameters of that time, or with today's
        where it is given None.
    """
    rankings = []
    for past in self._past:
      embedding = np.asarray(embed_query(past.params), np.float32)
      ids = past.searcher.search(embedding, _RANKED).ids_BxK[0]
      rankings.append(
        GenerationRanking(
          generation=past.generation,
          training_step=past.training_step,
          own_query_encoder=past.params is not None,
          passage_ids=tuple(i for i in ids.tolist() if i >= 0),
        )
      )
    return tuple(rankings)

  def _embedding(self, passage: WrittenPassage) -> np.ndarray:
    key = passage.title, passage.text
    with self._lock:
      if key in self._embeddings:
        self._embeddings.move_to_end(key)
        return self._embeddings[key]
    row = EditedStore(self.store, Edits({0: passage}))
    tokens = passage_tokens(row, np.array([0]), length=self._passage_length)
    embedding = np.asarray(self._embed_passage(tokens), np.float32)[0]
    with self._lock:
      self._embeddings[key] = embedding
      if len(self._embeddings) > _EMBEDDINGS_KEPT:
        self._embeddings.popitem(last=False)
    return embedding


def retriever_params(params: dict) -> dict:
  """Returns the dual encoder's parameters alone, as those of an earlier step come.

  So one compiled program embeds with the parameters of any step.
  """
  return {"dual_encoder": params["dual_encoder"]}
