"""Fills the `[MASK]` of sentences and explains from which passages, over a corpus as edited."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import jax
import numpy as np

from realm_jax.corpus.edits import EditedStore, Edits
from realm_jax.datatypes import (
  NULL_PASSAGE_ID,
  Array,
  MaskedQueries,
  RetrievedBatch,
  Tokens,
)
from realm_jax.inference.editable_corpus import EditableCorpus, retriever_params
from realm_jax.inference.explanation import (
  AnswerOption,
  Evidence,
  Explanation,
  Weighed,
  find_subsequences,
  unique_rows,
  weigh,
)
from realm_jax.inference.reading import Reading
from realm_jax.retrieval.retriever import RetrievalConfig, Retriever
from realm_jax.tokenization import WordPieceTokenizer


class MaskFiller:
  """Fills masks with one checkpoint and one index generation, and says why.

  Args:
    params: of the pre-training model.
    encode_query: jitted, `(params, Tokens [B, L]) -> [B, E]`.
    read: jitted, `(params, RetrievedBatch) -> Reading` that scores the targets, too.
    make_query: `(text, number of masks) -> MaskedQueries` of one row; refuses a text that does not
      fit.
    corpus: with the generation.
    tokenizer: of the corpus.
    config: sizes of what is retrieved; one passage more is read, which none of the answers sees.
    max_masks: wordpieces of an answer that the model can give.
    max_answer_length: wordpieces of an answer that are tried.
    step: of the checkpoint.
  """

  def __init__(
    self,
    *,
    params: dict,
    encode_query: Callable[[dict, Tokens], Array],
    read: Callable[[dict, RetrievedBatch], Reading],
    make_query: Callable[[str, int], MaskedQueries],
    corpus: EditableCorpus,
    tokenizer: WordPieceTokenizer,
    config: RetrievalConfig,
    max_masks: int,
    max_answer_length: int = 4,
    step: int = 0,
  ):
    self.step = step
    self.corpus = corpus
    self._params = params
    self._encode_query = encode_query
    self._read = read
    self._make_query = make_query
    self._tokenizer = tokenizer
    # No query here was cut from a passage.
    self._config = dataclasses.replace(
      config, num_passages=config.num_passages + 1, trivial_passage="allow"
    )
    self._max_masks = max_masks
    self._lengths = range(1, min(max_answer_length, max_masks) + 1)
    self._special = {0, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}

  def warm_up(self, *, max_texts: int = 1) -> None:
    """Compiles what so many texts at once need."""
    texts = 1
    while texts <= max_texts:
      self.fill_mask(["[MASK]"] * texts)
      texts *= 2
    written = self.corpus.write("", "warm")
    self.fill_mask(["[MASK]"], edits=Edits().with_passage(len(self.corpus.store), written))

  def fill_mask(
    self,
    texts: Sequence[str],
    *,
    answers: int = 5,
    target: str | None = None,
    edits: Edits = Edits(),
    with_rankings: bool = False,
  ) -> list[Explanation]:
    """Returns what fills the `[MASK]` of each text.

    Answers of one to `max_answer_length` wordpieces are tried. p(y|x) of answers of different
    lengths are compared although their queries differ in the number of masks.

    Args:
      texts: each with one `[MASK]`.
      answers: how many are given.
      target: an answer that is explained instead of the likeliest one.
      edits: of the corpus.
      with_rankings: whether to ask the earlier generations as well.

    Raises:
      ValueError: if a text has no `[MASK]`, or text or target are too long.
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
    size = len(lengths) * _power_of_two(len(texts))
    queries = _stacked(rows, size=size, num_masks=max(lengths))
    store = self.corpus.view(edits)
    batch, reading = self._retrieve_and_read(queries, edits, store)
    explanations = []
    for number, text in enumerate(texts):
      places = [row for row, owner in enumerate(owners) if owner == number]
      group = [self._candidates(batch, reading, row) for row in places]
      explanation, best = self._explain(text, group, store, answers, target_ids)
      if with_rankings:
        query = rows[places[best]].query
        rankings = self.corpus.rankings(functools.partial(self._query_embedding, query))
        explanation = dataclasses.replace(explanation, rankings=rankings)
      explanations.append(explanation)
    return explanations

  def _target_ids(self, target: str) -> tuple[int, ...]:
    ids = tuple(self._tokenizer.encode(target.strip()).tolist())
    if not 0 < len(ids) <= self._max_masks:
      raise ValueError(
        f"the answer {target!r} has {len(ids)} wordpieces; this model fills 1 to {self._max_masks}"
      )
    return ids

  def _rows(
    self, text: str, lengths: Sequence[int], target_ids: tuple[int, ...] | None
  ) -> list[MaskedQueries]:
    """Makes a query for each length of answer that the text leaves room for."""
    rows = []
    for length in lengths:
      wanted = target_ids is not None and length == len(target_ids)
      try:
        query = self._make_query(text, length)
      except ValueError:
        if length == 1 or wanted:
          raise
        continue
      if wanted:
        query.mlm_targets_BxM[0, :length] = target_ids
      rows.append(query)
    return rows

  def _retrieve_and_read(
    self, queries: MaskedQueries, edits: Edits, store: EditedStore
  ) -> tuple[RetrievedBatch, Reading]:
    retriever = Retriever(
      encode_query=self._encode_query,
      searcher=self.corpus.searcher(edits),
      store=store,
      config=self._config,
    )
    batch, _ = retriever.finish(retriever.begin(retriever_params(self._params), queries))
    reading = self._read(self._params, batch)
    return batch, jax.device_get(reading)

  def _candidates(self, batch: RetrievedBatch, reading: Reading, row: int) -> "_Candidates":
    masks = int(batch.queries.mlm_weights_BxM[row].sum())
    answers_CxM = reading.answers_BxCxM[row, :, :masks]
    kept = unique_rows(answers_CxM)
    log_probs_CxK = reading.log_probs_BxCxK[row][kept]
    return _Candidates(
      answers=[tuple(ids) for ids in answers_CxM[kept].tolist()],
      passage_ids=batch.passage_ids_BxK[row].tolist(),
      valid_K=batch.valid_BxK[row],
      log_probs_CxK=log_probs_CxK,
      weighed=weigh(
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
    """Returns the explanation, and which of the group the best answer is of."""
    options = [self._options(candidates) for candidates in group]
    best = max(range(len(group)), key=lambda number: group[number].log_prob(options[number][0]))
    # Answers of other lengths answer another query, with another number of masks.
    listed = [(group[best], c) for c in options[best]]
    likeliest = listed[0]
    if target_ids:
      best = next(n for n, candidates in enumerate(group) if target_ids in candidates.answers)
      asked = group[best], group[best].answers.index(target_ids)
      listed = [asked, *(option for option in listed if option != asked)]
    place = listed[0][1]
    chosen = group[best]
    texts = {i: store.text(i) for g in group for i in g.passage_ids if i >= 0}
    encoded = dict(
      zip(texts, self._tokenizer.encode_with_offsets(list(texts.values())), strict=True)
    )
    find = functools.partial(_find, texts, encoded)
    spoken = functools.partial(self._spoken, find)
    evidence = []
    for slot in np.flatnonzero(chosen.valid_K[:-1] | (np.arange(len(chosen.valid_K) - 1) == 0)):
      passage_id = chosen.passage_ids[slot]
      found = find(passage_id, chosen.answers[place])
      without = self._best_without(passage_id, group)
      evidence.append(
        Evidence(
          passage_id=passage_id,
          title=store.title(passage_id) if passage_id >= 0 else "",
          text=texts.get(passage_id, ""),
          edited=passage_id >= 0 and store.edited(passage_id),
          retrieval_probability=float(chosen.weighed.prior_K[slot]),
          answer_probability=float(np.exp(chosen.log_probs_CxK[place, slot])),
          contribution=float(
            chosen.weighed.prior_K[slot] * np.exp(chosen.log_probs_CxK[place, slot])
          ),
          utility=float(chosen.log_probs_CxK[place, slot] - chosen.log_probs_CxK[place, 0]),
          says=self._says(chosen, slot, passage_id, spoken),
          spans=found,
          probability_without=float(np.exp(chosen.weighed.log_probs_without_KxC[slot, place])),
          answer_without=spoken(without[1], without[0]),
        )
      )
    evidence.sort(key=lambda passage: -passage.retrieval_probability)
    explanation = Explanation(
      query=text,
      answers=tuple(_option(candidates, c, spoken) for candidates, c in listed[:num_answers]),
      likeliest=_option(*likeliest, spoken).text,
      null_share=float(chosen.weighed.prior_K[0]),
      passages=tuple(evidence),
    )
    return explanation, best

  def _options(self, candidates: "_Candidates", log_probs_C: np.ndarray | None = None) -> list[int]:
    """Returns the candidates that are answers, likeliest first."""
    order = np.argsort(-(candidates.weighed.log_probs_C if log_probs_C is None else log_probs_C))
    return [c for c in order.tolist() if not self._special.intersection(candidates.answers[c])]

  def _says(self, chosen: "_Candidates", slot: int, passage_id: int, spoken) -> str:
    first = self._options(chosen, chosen.log_probs_CxK[:, slot])[0]
    return spoken(chosen.answers[first], [passage_id])

  def _best_without(
    self, passage_id: int, group: Sequence["_Candidates"]
  ) -> tuple[list[int], tuple[int, ...]]:
    """Returns the passages left and the likeliest answer, of any length, without a passage."""
    best = None
    for candidates in group:
      log_probs_C = candidates.weighed.log_probs_C
      if passage_id in candidates.passage_ids[:-1]:
        slot = candidates.passage_ids.index(passage_id)
        log_probs_C = candidates.weighed.log_probs_without_KxC[slot]
      first = self._options(candidates, log_probs_C)[0]
      if best is None or log_probs_C[first] > best[0]:
        left = [i for i in candidates.passage_ids if i != passage_id]
        best = log_probs_C[first], left, candidates.answers[first]
    return best[1:]

  def _spoken(self, find, ids: tuple[int, ...], passage_ids: Sequence[int]) -> str:
    """Returns an answer as the first of the passages writes it, or its wordpieces joined."""
    for passage_id in passage_ids:
      spans = find(passage_id, ids, as_text=True)
      if spans:
        return spans[0]
    return self._tokenizer.decode(ids)

  def _query_embedding(self, query: Tokens, params: dict | None) -> Array:
    return self._encode_query(retriever_params(self._params if params is None else params), query)


@dataclasses.dataclass(frozen=True)
class _Candidates:
  """Candidate answers of one number of wordpieces, and the passages that they were read from."""

  answers: list[tuple[int, ...]]
  passage_ids: list[int]
  valid_K: np.ndarray
  log_probs_CxK: np.ndarray
  weighed: Weighed

  def log_prob(self, c: int) -> float:
    """Returns log p(y|x) of a candidate."""
    return float(self.weighed.log_probs_C[c])


def _option(candidates: _Candidates, c: int, spoken) -> AnswerOption:
  real = [k for k, i in enumerate(candidates.passage_ids[:-1]) if i > NULL_PASSAGE_ID]
  order = sorted(real, key=lambda k: -candidates.weighed.prior_K[k])
  given = max((candidates.log_probs_CxK[c, k] for k in real), default=-np.inf)
  return AnswerOption(
    text=spoken(candidates.answers[c], [candidates.passage_ids[k] for k in order]),
    probability=float(np.exp(candidates.weighed.log_probs_C[c])),
    probability_without_retrieval=float(np.exp(candidates.log_probs_CxK[c, 0])),
    probability_given_best=float(np.exp(given)),
  )


def _find(texts, encoded, passage_id: int, ids: Sequence[int], as_text: bool = False):
  """Returns where an answer stands in a passage: character spans, or the words themselves."""
  if passage_id not in texts:
    return ()
  body_ids, starts, limits = encoded[passage_id]
  raw = texts[passage_id].encode()
  places = find_subsequences(body_ids.tolist(), ids)
  spans = [(int(starts[p]), int(limits[p + len(ids) - 1])) for p in places]
  if as_text:
    return tuple(raw[start:limit].decode() for start, limit in spans)
  return tuple((len(raw[:start].decode()), len(raw[:limit].decode())) for start, limit in spans)


def _stacked(rows: Sequence[MaskedQueries], *, size: int, num_masks: int) -> MaskedQueries:
  """Puts rows one below the other, the last one repeated up to `size`, with so many masks at most.

  Each further mask would cost a softmax over the vocabulary for every passage.
  """
  filled = [*rows, *([rows[-1]] * (size - len(rows)))]
  stacked = jax.tree.map(lambda *parts: np.concatenate(parts), *filled)
  return stacked.replace(
    mlm_positions_BxM=stacked.mlm_positions_BxM[:, :num_masks],
    mlm_targets_BxM=stacked.mlm_targets_BxM[:, :num_masks],
    mlm_weights_BxM=stacked.mlm_weights_BxM[:, :num_masks],
  )


def _power_of_two(number: int) -> int:
  return 1 << (number - 1).bit_length()
