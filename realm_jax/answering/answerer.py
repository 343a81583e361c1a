"""What answerers have in common: a corpus with edits, searched, and answers explained by it."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from realm_jax.answering.explanation import Explanation, GenerationRanking
from realm_jax.corpus.edits import EditedStore, Edits, WrittenPassage, write_passage
from realm_jax.corpus.passage_store import Passages, titled_text
from realm_jax.devices.datatypes import MISSING_PASSAGE_ID, Array, SearchResults, Tokens
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.vectors.searcher import Embeddings, Searcher, merge
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.joint_inputs import passage_tokens
from realm_jax.text.wordpieces import MASK, Tokenizer

Kind = Literal["mask", "question"]
_EMBEDDINGS_KEPT = 4096  # cached embeddings of edited passages
_RANKED = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class PastGeneration:
  """An earlier generation, and the query encoder of that time.

  Attributes:
    training_step: Step of the passage embeddings.
    params: Parameters of the query encoder at that step; None if its checkpoint is gone.
  """

  generation: int
  training_step: int
  searcher: Searcher
  params: dict | None


@dataclasses.dataclass(eq=False, kw_only=True)
class EditableCorpus:
  """Searches a corpus with edits applied.

  Attributes:
    loaded: One generation of its index.
    tokenizer: The tokenizer that made the passages.
    passage_length: P.
    embed_passage: Embeds `Tokens` `[R, P]` like the generation's passages, to `[R, E]`; None
      disables edits.
    past: Earlier generations, oldest first; they are searched without BM25.
    hybrid: BM25, to search as well; None searches the generation alone.
  """

  store: Passages
  loaded: LoadedGeneration
  tokenizer: Tokenizer
  passage_length: int
  embed_passage: Callable[[Tokens], np.ndarray] | None = None
  past: Sequence[PastGeneration] = ()
  hybrid: Hybrid | None = None

  def __post_init__(self):
    self._embedding = functools.lru_cache(_EMBEDDINGS_KEPT)(self._embed)

  @property
  def generation(self) -> int:
    return self.loaded.generation

  def write(self, title: str, text: str) -> WrittenPassage:
    """Tokenizes an edited passage."""
    return write_passage(
      title,
      text,
      tokenizer=self.tokenizer,
      max_passage_length=min(self.store.metadata.max_passage_length, self.passage_length),
    )

  def view(self, edits: Edits) -> EditedStore:
    """Returns the corpus with the edits applied."""
    return EditedStore(self.store, edits)

  def index(self, edits: Edits, texts: Sequence[str] = ()) -> LoadedGeneration:
    """Returns the generation with the edits applied; BM25, if any, searches for the texts."""
    loaded = self._edited(edits)
    if self.hybrid is None or not texts:
      return loaded
    hybrid = self.hybrid
    if edits:
      hybrid = hybrid.edited(
        hidden=[i for i in edits.passages if i < len(self.store)],
        written={i: titled_text(self.view(edits), i) for i, _ in edits.written()},
        embeddings_IxE=loaded.embeddings_NxE,
      )
    return dataclasses.replace(loaded, searcher=hybrid.searcher(loaded.searcher, texts))

  def _edited(self, edits: Edits) -> LoadedGeneration:
    if not edits:
      return self.loaded
    written = {i: self._embedding(passage.title, passage.text) for i, passage in edits.written()}
    hidden = [i for i in edits.passages if i < len(self.store)]
    searcher = EditedSearcher(self.loaded.searcher, hidden, written)
    embeddings_NxE = self.loaded.embeddings_NxE
    if embeddings_NxE is not None:
      embeddings_NxE = _EditedRows(embeddings_NxE, written, len(self.store))
    return dataclasses.replace(self.loaded, searcher=searcher, embeddings_NxE=embeddings_NxE)

  def rankings(self, embed_query: Callable[[dict | None], np.ndarray]) -> tuple:
    """Returns the `GenerationRanking` of each earlier generation.

    Args:
      embed_query: Embeds the query, `[1, E]`, with the given parameters; None means the current
        ones.
    """
    rankings = []
    for past in self.past:
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

  def _embed(self, title: str, text: str) -> np.ndarray:
    if self.embed_passage is None:
      raise ValueError("this corpus cannot be edited; open it with its passage encoder")
    row = self.view(Edits({0: self.write(title, text)}))
    tokens = passage_tokens(row, np.array([0]), length=self.passage_length)
    return np.asarray(self.embed_passage(tokens), np.float32)[0]


@dataclasses.dataclass(frozen=True)
class EditedSearcher:
  """Searches an index minus some of its passages, plus a few others, which it searches exactly.

  Attributes:
    hidden: Ids of passages that were changed or removed.
    written: Embeddings `[E]` of passages that were added or changed, by id.
  """

  base: Searcher
  hidden: Sequence[int]
  written: Mapping[int, np.ndarray]

  def search(self, queries_BxE: np.ndarray, k: int) -> SearchResults:
    """Returns the best `k` passages of each query."""
    ids_BxK, scores_BxK = self.base.search(queries_BxE, k + len(self.hidden))
    gone_BxK = np.isin(ids_BxK, [*self.hidden])
    parts = [
      SearchResults(
        np.where(gone_BxK, MISSING_PASSAGE_ID, ids_BxK),
        np.where(gone_BxK, np.float32(-np.inf), scores_BxK),
      )
    ]
    if self.written:
      scores_BxJ = queries_BxE.astype(np.float32) @ np.stack([*self.written.values()]).T
      ids_BxJ = np.broadcast_to(np.array([*self.written], np.int32), scores_BxJ.shape)
      parts.append(SearchResults(ids_BxJ, scores_BxJ))
    return merge(parts, k)


@dataclasses.dataclass(frozen=True)
class _EditedRows:
  """The embeddings of an index, some replaced or added."""

  embeddings_NxE: Embeddings
  edited: dict[int, np.ndarray]
  size: int

  def __getitem__(self, ids: np.ndarray, /) -> np.ndarray:
    rows = self.embeddings_NxE[np.where(ids < self.size, ids, 0)]
    for passage_id, embedding in self.edited.items():
      rows[ids == passage_id] = embedding
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnsweringModel:
  """A compiled model; subclasses add what their answerer needs.

  Attributes:
    encode_query: Jitted, `(params, Tokens [B, L]) -> [B, E]`.
    read: Jitted, `(params, batch) -> ...`.
    query_length: L.
  """

  params: dict
  encode_query: Callable[[dict, Tokens], Array]
  read: Callable[[dict, Any], Any]
  query_length: int
  step: int = 0


Model = TypeVar("Model", bound=AnsweringModel)


class Answerer(abc.ABC, Generic[Model]):
  """Answers texts with one checkpoint and one index generation, and explains the answers.

  Attributes:
    kind: The kind of query: a sentence with a `[MASK]`, or a question.
    corpus: The corpus, with the generation.
  """

  kind: ClassVar[Kind]

  def __init__(self, model: Model, corpus: EditableCorpus):
    self.model = model
    self.corpus = corpus
    self.step = model.step

  def explain(
    self,
    texts: Sequence[str],
    *,
    answers: int = 5,
    target: str | None = None,
    edits: Edits = Edits(),
    with_rankings: bool = False,
  ) -> list[Explanation]:
    """Answers each text and explains the answer by the passages.

    Args:
      target: An answer to explain instead of the most likely one.
      with_rankings: Whether to search earlier generations as well.

    Raises:
      ValueError: If the model cannot take a text or the target, or no passage is left to read.
    """
    explanations = []
    for explanation, query in self._explained(texts, answers, target, edits):
      if with_rankings:
        explanation = dataclasses.replace(explanation, rankings=self._rankings(query))
      explanations.append(explanation)
    return explanations

  @abc.abstractmethod
  def _explained(
    self, texts: Sequence[str], answers: int, target: str | None, edits: Edits
  ) -> Iterator[tuple[Explanation, Tokens]]:
    """Yields each explanation with the query `[1, L]` used for the search."""

  def warm_up(self) -> None:
    """Compiles the programs for one text."""
    text = MASK if self.kind == "mask" else "warm"
    self.explain([text])
    written = self.corpus.write("", "warm")
    self.explain([text], edits=Edits().with_passage(len(self.corpus.store), written))

  def _rankings(self, query: Tokens) -> tuple[GenerationRanking, ...]:
    model = self.model
    return self.corpus.rankings(
      lambda params: model.encode_query(model.params if params is None else params, query)
    )


def power_of_two(number: int) -> int:
  """Returns the smallest power of two not below a number, so that few sizes are compiled."""
  return 1 << (number - 1).bit_length()
