"""Fills the `[MASK]` of sentences and explains the answers, over a corpus with edits.

The answer y has the highest p(y|x) = Σ_z p(z|x) Π_m p(y_m|z,x) (Guu et al. 2020). Special
wordpieces are never answers.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from realm_jax.answering.answerer import Answerer, AnsweringModel, EditableCorpus, power_of_two
from realm_jax.answering.explanation import (
  AnswerOption,
  Evidence,
  Explanation,
  LeaveOneOut,
  leave_one_out,
)
from realm_jax.answering.mask_decoding import Reading
from realm_jax.corpus.edits import EditedStore, Edits
from realm_jax.data.question_batches import masked_text_query
from realm_jax.devices.datatypes import (
  NULL_PASSAGE_ID,
  MaskedQueries,
  RetrievedBatch,
  SearchResults,
  Tokens,
)
from realm_jax.retrieval.joint_inputs import gather
from realm_jax.retrieval.retriever import (
  RetrievalConfig,
  choose_passages,
  closed_book,
  without_null,
)
from realm_jax.text.wordpieces import Tokenizer


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskModel(AnsweringModel):
  """A pre-trained model; `read` is `(params, RetrievedBatch) -> Reading` and scores the targets.

  Attributes:
    retrieval: Settings of retrieval. One more passage is found, the reserve for explanations.
    max_masks: Maximum wordpieces of an answer.
  """

  retrieval: RetrievalConfig
  max_masks: int


@dataclasses.dataclass(frozen=True)
class FilledMask:
  """The most likely answer to a masked query, as wordpieces, and its p(y|x)."""

  ids: tuple[int, ...]
  probability: float


def answer_words(tokenizer: Tokenizer, size: int | None = None) -> np.ndarray:
  """Returns whether each wordpiece may be in an answer, for a model of so many, or as many."""
  words_V = np.arange(tokenizer.vocab_size if size is None else size) < tokenizer.vocab_size
  words_V[[0, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]] = False
  return words_V


class MaskFiller(Answerer[MaskModel]):
  """Fills masks with one pre-trained checkpoint and one index generation."""

  kind = "mask"

  def __init__(self, model: MaskModel, corpus: EditableCorpus, *, max_answer_length: int = 4):
    super().__init__(model, corpus)
    self._lengths = range(1, min(max_answer_length, model.max_masks) + 1)
    tokenizer = corpus.tokenizer
    self._words_V = answer_words(tokenizer)

  def retrieve(self, queries: MaskedQueries, *, k: int, texts: Sequence[str] = ()) -> np.ndarray:
    """Returns the ids `[B, k]` of the best passages, without the null passage; see `fill`."""
    return self._search(queries, texts, Edits(), k=k).ids_BxK

  def fill(
    self,
    queries: MaskedQueries,
    *,
    texts: Sequence[str] = (),
    without_retrieval: bool = False,
    trivial: Callable[[np.ndarray], np.ndarray] | None = None,
    num_extra: int = 0,
  ) -> list[FilledMask]:
    """Returns the answer to each query, with as many wordpieces as it has masks.

    Args:
      queries: B masked queries; their targets are ignored.
      texts: Their texts, for BM25 if the corpus has it.
      without_retrieval: Reads each query with the null passage alone (closed book).
      trivial: Returns True for those of the found passages `[B, R]` that must not be read, because
        they give the answer away; None reads all.
      num_extra: Number of passages to find in place of those.
    """
    # A target would be tried as an answer.
    queries = dataclasses.replace(queries, mlm_targets_BxM=np.zeros_like(queries.mlm_targets_BxM))
    num_read = self.model.retrieval.num_passages
    batch = self._retrieve(
      queries, texts, Edits(), num_read=num_read, trivial=trivial, num_extra=num_extra
    )
    reading = self._read(closed_book(batch) if without_retrieval else batch)
    return [self._likeliest(batch, reading, row) for row in range(len(batch.passage_ids_BxK))]

  def _explained(
    self, texts: Sequence[str], answers: int, target: str | None, edits: Edits
  ) -> Iterator[tuple[Explanation, Tokens]]:
    """See `Answerer`. Each text has one `[MASK]`.

    Answers of one to `max_answer_length` wordpieces are tried. p(y|x) is compared across lengths,
    although the queries differ in their number of masks.
    """
    target_ids = None if target is None else self._target_ids(target)
    lengths = [*self._lengths]
    if target_ids and len(target_ids) not in lengths:
      lengths.append(len(target_ids))
    rows, owners = [], []
    for number, text in enumerate(texts):
      own = self._rows(text, lengths, target_ids)
      rows += own
      owners += [number] * len(own)
    size = len(lengths) * power_of_two(len(texts))
    queries = _stacked(rows, size=size, num_masks=max(lengths))
    store = self.corpus.view(edits)
    sentences = [texts[int(owner)] for owner in owners]
    num_read = self.model.retrieval.num_passages + 1
    batch = self._retrieve(queries, sentences, edits, num_read=num_read)
    reading = self._read(batch)
    for number, text in enumerate(texts):
      rows_of_text = [row for row, owner in enumerate(owners) if owner == number]
      group = [self._candidates(batch, reading, row) for row in rows_of_text]
      explanation, best = self._explain(text, group, store, answers, target_ids)
      yield explanation, rows[rows_of_text[best]].query

  def _target_ids(self, target: str) -> tuple[int, ...]:
    ids = tuple(self.corpus.tokenizer.encode(target.strip()).tolist())
    if not 0 < len(ids) <= self.model.max_masks:
      raise ValueError(
        f"the answer {target!r} has {len(ids)} wordpieces; this model fills 1 to "
        f"{self.model.max_masks}"
      )
    return ids

  def _rows(
    self, text: str, lengths: Sequence[int], target_ids: tuple[int, ...] | None
  ) -> list[MaskedQueries]:
    """Makes a query for each answer length that the text leaves room for."""
    rows = []
    for length in lengths:
      wanted = target_ids is not None and length == len(target_ids)
      try:
        query = masked_text_query(
          text,
          num_masks=length,
          tokenizer=self.corpus.tokenizer,
          query_length=self.model.query_length,
          max_masks=self.model.max_masks,
        )
      except ValueError:
        if length == 1 or wanted:
          raise
        continue
      if wanted:
        query.mlm_targets_BxM[0, :length] = target_ids
      rows.append(query)
    return rows

  def _retrieve(
    self,
    queries: MaskedQueries,
    texts: Sequence[str],
    edits: Edits,
    *,
    num_read: int,
    trivial: Callable[[np.ndarray], np.ndarray] | None = None,
    num_extra: int = 0,
  ) -> RetrievedBatch:
    """Retrieves the passages of each query, and keeps the first `num_read`; see `fill`."""
    sizes = self.model.retrieval
    # The reserve is always found, so that the same passages are read with and without an
    # explanation.
    found = self._search(queries, texts, edits, k=sizes.num_passages + num_extra)
    trivial_BxR = np.zeros(found.ids_BxK.shape, bool) if trivial is None else trivial(found.ids_BxK)
    chosen = choose_passages(found, trivial_BxR=trivial_BxR, num_passages=sizes.num_passages + 1)
    batch = gather(
      queries,
      SearchResults(chosen.ids_BxK[:, :num_read], chosen.scores_BxK[:, :num_read]),
      store=self.corpus.view(edits),
      passage_length=sizes.passage_length,
      joint_length=sizes.joint_length,
    )
    return without_null(batch) if sizes.null_passage == "mask" else batch

  def _search(
    self, queries: MaskedQueries, texts: Sequence[str], edits: Edits, *, k: int
  ) -> SearchResults:
    queries_BxE = self.model.encode_query(self.model.params, queries.query)
    queries_BxE = np.asarray(queries_BxE, np.float32)
    return self.corpus.index(edits, texts).searcher.search(queries_BxE, k)

  def _read(self, batch: RetrievedBatch) -> Reading:
    return jax.device_get(self.model.read(self.model.params, batch))

  def _likeliest(self, batch: RetrievedBatch, reading: Reading, row: int) -> FilledMask:
    masks = int(batch.queries.mlm_weights_BxM[row].sum())
    answers = map(tuple, reading.answers_BxCxM[row, :, :masks].tolist())
    for ids, log_prob in zip(answers, reading.log_probs_BxC[row], strict=True):
      if self._is_text(ids):
        return FilledMask(ids, float(np.exp(log_prob)))
    return FilledMask((), 0.0)

  def _is_text(self, ids: Sequence[int]) -> bool:
    return max(ids, default=0) < len(self._words_V) and bool(self._words_V[list(ids)].all())

  def _candidates(self, batch: RetrievedBatch, reading: Reading, row: int) -> "_Candidates":
    masks = int(batch.queries.mlm_weights_BxM[row].sum())
    answers_CxM = reading.answers_BxCxM[row, :, :masks]
    _, firsts = np.unique(answers_CxM, axis=0, return_index=True)
    kept = np.sort(firsts)
    log_probs_CxK = reading.log_probs_BxCxK[row][kept]
    return _Candidates(
      answers=[tuple(ids) for ids in answers_CxM[kept].tolist()],
      passage_ids=batch.passage_ids_BxK[row].tolist(),
      valid_K=batch.valid_BxK[row],
      log_probs_CxK=log_probs_CxK,
      weights=leave_one_out(
        reading.retrieval_log_probs_BxK[row],
        log_probs_CxK,
        valid_K=batch.valid_BxK[row],
        corpus_K=batch.passage_ids_BxK[row] != NULL_PASSAGE_ID,
      ),
    )

  def _explain(
    self,
    text: str,
    group: Sequence["_Candidates"],
    store: EditedStore,
    num_answers: int,
    target_ids: tuple[int, ...] | None,
  ) -> tuple[Explanation, int]:
    """Returns the explanation, and the index in the group of the best answer's query."""
    options = [self._options(candidates) for candidates in group]
    best = max(range(len(group)), key=lambda number: group[number].log_prob(options[number][0]))
    # Answers of other lengths belong to another query, with another number of masks.
    listed = [(group[best], c) for c in options[best]]
    likeliest = listed[0]
    if target_ids:
      best = next(n for n, candidates in enumerate(group) if target_ids in candidates.answers)
      target = group[best], group[best].answers.index(target_ids)
      listed = [target, *(option for option in listed if option != target)]
    index = listed[0][1]
    chosen = group[best]
    texts = {i: store.text(i) for g in group for i in g.passage_ids if i >= 0}
    encoded = dict(
      zip(texts, self.corpus.tokenizer.encode_with_offsets(list(texts.values())), strict=True)
    )
    find = functools.partial(_find, texts, encoded)
    spoken = functools.partial(self._spoken, find)
    evidence = []
    read_K = chosen.valid_K[:-1] | (np.arange(len(chosen.valid_K) - 1) == 0)
    for slot in np.flatnonzero(read_K).tolist():
      passage_id = chosen.passage_ids[slot]
      log_prob, prior = chosen.log_probs_CxK[index, slot], chosen.weights.prior_K[slot]
      without = self._best_without(passage_id, group)
      said = self._options(chosen, chosen.log_probs_CxK[:, slot])[0]
      evidence.append(
        Evidence(
          passage_id=passage_id,
          title=store.title(passage_id) if passage_id >= 0 else "",
          text=texts.get(passage_id, ""),
          edited=passage_id >= 0 and store.edited(passage_id),
          retrieval_probability=float(prior),
          answer_probability=float(np.exp(log_prob)),
          contribution=float(prior * np.exp(log_prob)),
          utility=float(log_prob - chosen.log_probs_CxK[index, 0]),
          says=spoken(chosen.answers[said], [passage_id]),
          spans=find(passage_id, chosen.answers[index]),
          probability_without=float(np.exp(chosen.weights.log_probs_without_KxC[slot, index])),
          answer_without=spoken(without[1], without[0]),
        )
      )
    evidence.sort(key=lambda passage: -passage.retrieval_probability)
    explanation = Explanation(
      query=text,
      answers=tuple(_option(candidates, c, spoken) for candidates, c in listed[:num_answers]),
      likeliest=_option(*likeliest, spoken).text,
      null_share=float(chosen.weights.prior_K[0]),
      passages=tuple(evidence),
    )
    return explanation, best

  def _options(self, candidates: "_Candidates", log_probs_C: np.ndarray | None = None) -> list[int]:
    """Returns the candidates that are answers, most likely first."""
    order = np.argsort(-(candidates.weights.log_probs_C if log_probs_C is None else log_probs_C))
    return [c for c in order.tolist() if self._is_text(candidates.answers[c])]

  def _best_without(
    self, passage_id: int, group: Sequence["_Candidates"]
  ) -> tuple[list[int], tuple[int, ...]]:
    """Returns the passages left and the most likely answer of any length without a passage."""
    best = -np.inf, [], ()
    for candidates in group:
      log_probs_C = candidates.weights.log_probs_C
      if passage_id in candidates.passage_ids[:-1]:
        slot = candidates.passage_ids.index(passage_id)
        log_probs_C = candidates.weights.log_probs_without_KxC[slot]
      first = self._options(candidates, log_probs_C)[0]
      if not best[2] or log_probs_C[first] > best[0]:
        left = [i for i in candidates.passage_ids if i != passage_id]
        best = log_probs_C[first], left, candidates.answers[first]
    return best[1:]

  def _spoken(self, find, ids: tuple[int, ...], passage_ids: Sequence[int]) -> str:
    """Returns an answer as written in the first passage that has it, or its wordpieces joined."""
    for passage_id in passage_ids:
      spans = find(passage_id, ids, as_text=True)
      if spans:
        return spans[0]
    return self.corpus.tokenizer.decode(ids)


@dataclasses.dataclass(frozen=True)
class _Candidates:
  """Candidate answers of equal length, and the passages that they were read from."""

  answers: list[tuple[int, ...]]
  passage_ids: list[int]
  valid_K: np.ndarray
  log_probs_CxK: np.ndarray
  weights: LeaveOneOut

  def log_prob(self, c: int) -> float:
    """Returns log p(y|x) of a candidate."""
    return float(self.weights.log_probs_C[c])


def _option(candidates: _Candidates, c: int, spoken) -> AnswerOption:
  real = [k for k, i in enumerate(candidates.passage_ids[:-1]) if i > NULL_PASSAGE_ID]
  order = sorted(real, key=lambda k: -candidates.weights.prior_K[k])
  given = max((candidates.log_probs_CxK[c, k] for k in real), default=-np.inf)
  return AnswerOption(
    text=spoken(candidates.answers[c], [candidates.passage_ids[k] for k in order]),
    probability=float(np.exp(candidates.weights.log_probs_C[c])),
    probability_without_retrieval=float(np.exp(candidates.log_probs_CxK[c, 0])),
    probability_given_best=float(np.exp(given)),
  )


def _find(texts, encoded, passage_id: int, ids: Sequence[int], as_text: bool = False):
  """Finds an answer in a passage; returns its character spans, or its words."""
  if passage_id not in texts:
    return ()
  body_ids, starts, limits = encoded[passage_id]
  raw = texts[passage_id].encode()
  starts_of_answer = _starts_of(ids, body_ids.tolist())
  spans = [(int(starts[p]), int(limits[p + len(ids) - 1])) for p in starts_of_answer]
  if as_text:
    return tuple(raw[start:limit].decode() for start, limit in spans)
  return tuple((len(raw[:start].decode()), len(raw[:limit].decode())) for start, limit in spans)


def _stacked(rows: Sequence[MaskedQueries], *, size: int, num_masks: int) -> MaskedQueries:
  """Stacks rows with at most `num_masks` masks, repeating the last one up to `size`.

  Each further mask would cost a softmax over the vocabulary per passage.
  """
  filled = [*rows, *([rows[-1]] * (size - len(rows)))]
  stacked = jax.tree.map(lambda *parts: np.concatenate(parts), *filled)
  return stacked.replace(
    mlm_positions_BxM=stacked.mlm_positions_BxM[:, :num_masks],
    mlm_targets_BxM=stacked.mlm_targets_BxM[:, :num_masks],
    mlm_weights_BxM=stacked.mlm_weights_BxM[:, :num_masks],
  )


def _starts_of(wanted: Sequence[int], ids: Sequence[int]) -> list[int]:
  """Returns the starts of the non-overlapping occurrences of `wanted` in `ids`."""
  ids, wanted, found, position = list(ids), list(wanted), [], 0
  while wanted and position + len(wanted) <= len(ids):
    if ids[position : position + len(wanted)] == wanted:
      found.append(position)
      position += len(wanted)
    else:
      position += 1
  return found
