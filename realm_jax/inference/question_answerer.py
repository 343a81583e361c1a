"""Answers questions with words of passages, and explains from which, over a corpus as edited."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from realm_jax.corpus.edits import EditedStore, Edits
from realm_jax.corpus.wordpiece_offsets import body_offsets
from realm_jax.datatypes import MASK, Array, RetrievedQuestions, Tokens
from realm_jax.inference.editable_corpus import EditableCorpus, retriever_params
from realm_jax.inference.explanation import (
  AnswerOption,
  Evidence,
  Explanation,
  Weighed,
  weigh,
)
from realm_jax.inference.question_predictor import question_batches
from realm_jax.inference.word_spans import WordSpans, by_words
from realm_jax.retrieval.question_retriever import (
  BeamConfig,
  EmbeddedGeneration,
  QuestionRetriever,
)
from realm_jax.tokenization import WordPieceTokenizer


class QuestionAnswerer:
  """Answers questions with one fine-tuned checkpoint and one index generation, and says why.

  The same words in several places and passages are one answer y, and p(y|x) is the sum over all of
  them in the model's one softmax over the spans of all passages read.

  Args:
    params: of the model.
    encode_query: jitted, `(params, Tokens [B, L]) -> [B, E]`.
    read: jitted, `(params, RetrievedQuestions) -> scores_BxK, logits_BxKxTxW`.
    corpus: with the generation.
    loaded: the generation.
    tokenizer: of the corpus.
    config: sizes of what is retrieved; one passage more is read, which none of the answers sees.
    max_span_width: wordpieces of an answer.
    query_length: L.
    step: of the checkpoint.
  """

  def __init__(
    self,
    *,
    params: dict,
    encode_query: Callable[[dict, Tokens], Array],
    read: Callable[[dict, RetrievedQuestions], tuple[Array, Array]],
    corpus: EditableCorpus,
    loaded: EmbeddedGeneration,
    tokenizer: WordPieceTokenizer,
    config: BeamConfig,
    max_span_width: int,
    query_length: int,
    step: int = 0,
  ):
    self.step = step
    self.corpus = corpus
    self._params = params
    self._encode_query = encode_query
    self._read = read
    self._loaded = loaded
    self._tokenizer = tokenizer
    num_read = config.num_read + 1
    self._config = dataclasses.replace(config, num_read=num_read, beam_size=num_read)
    self._max_span_width = max_span_width
    self._query_length = query_length
    self._continues = np.array([piece.startswith("##") for piece in tokenizer.vocabulary])

  def warm_up(self, *, max_texts: int = 1) -> None:
    """Compiles what so many questions at once need."""
    texts = 1
    while texts <= max_texts:
      self.answer(["warm"] * texts)
      texts *= 2
    written = self.corpus.write("", "warm")
    self.answer(["warm"], edits=Edits().with_passage(len(self.corpus.store), written))

  def answer(
    self,
    texts: Sequence[str],
    *,
    answers: int = 5,
    target: str | None = None,
    edits: Edits = Edits(),
    with_rankings: bool = False,
  ) -> list[Explanation]:
    """Returns what answers each question.

    Args:
      texts: the questions.
      answers: how many are given.
      target: an answer that is explained instead of the likeliest one; its p(y|x) is 0 if no
        passage read has its words.
      edits: of the corpus.
      with_rankings: whether to ask the earlier generations as well.

    Raises:
      ValueError: if a question has a `[MASK]` or is too long, the target is empty, or no passage is
        left to read.
    """
    for text in texts:
      self._check(text)
    if target is not None and not target.strip():
      raise ValueError("the answer asked for is empty; leave it out for the likeliest one")
    store = self.corpus.view(edits)
    size = 1 << (len(texts) - 1).bit_length()
    ((questions, _),) = question_batches(
      texts, tokenizer=self._tokenizer, query_length=self._query_length, batch_size=size
    )
    retriever = QuestionRetriever(
      encode_query=self._encode_query,
      loaded=self._edited_generation(edits),
      store=store,
      config=self._config,
      max_span_width=self._max_span_width,
    )
    params = retriever_params(self._params)
    batch, _ = retriever.finish(retriever.begin(params, questions))
    scores_BxK, logits_BxKxTxW = (np.asarray(part) for part in self._read(self._params, batch))
    explanations = []
    for row, text in enumerate(texts):
      read = self._read_words(batch, row, scores_BxK[row], logits_BxKxTxW[row], store)
      explanation = _explain(text, read, store, num_answers=answers, target=target)
      if with_rankings:
        query = questions.query
        one = Tokens(*(part[row : row + 1] for part in (query.ids, query.mask, query.segments)))
        rankings = self.corpus.rankings(functools.partial(self._query_embedding, one))
        explanation = dataclasses.replace(explanation, rankings=rankings)
      explanations.append(explanation)
    return explanations

  def _check(self, text: str) -> None:
    if MASK in text:
      raise ValueError(f"{text!r} has a {MASK}; this model answers questions, ask one")
    length, room = len(self._tokenizer.encode(text)), self._query_length - 2
    if not 0 < length <= room:
      raise ValueError(
        f"the question {text!r} has {length} wordpieces; this model reads 1 to {room}"
      )

  def _edited_generation(self, edits: Edits) -> EmbeddedGeneration:
    if not edits:
      return self._loaded
    return dataclasses.replace(
      self._loaded,
      searcher=self.corpus.searcher(edits),
      embeddings_NxE=_EditedRows(self._loaded.embeddings_NxE, self.corpus.embeddings(edits)),
    )

  def _query_embedding(self, query: Tokens, params: dict | None) -> Array:
    return self._encode_query(retriever_params(self._params if params is None else params), query)

  def _read_words(
    self,
    batch: RetrievedQuestions,
    row: int,
    scores_K: np.ndarray,
    logits_KxTxW: np.ndarray,
    store: EditedStore,
  ) -> list["_ReadPassage | None"]:
    """Returns what was read in each slot; None where there is no passage."""
    ids_K = batch.passage_ids_BxR[row]
    offsets = iter(body_offsets(store, self._tokenizer, ids_K[ids_K >= 0]))
    first = int(batch.query.mask[row].sum())
    read = []
    for slot, passage_id in enumerate(ids_K.tolist()):
      if passage_id < 0:
        read.append(None)
        continue
      limit = int(batch.joint.mask[row, slot].sum()) - 1  # the final [SEP]
      spans = by_words(
        logits_KxTxW[slot, first:limit], self._continues[batch.joint.ids[row, slot, first:limit]]
      )
      starts, limits = next(offsets)
      text = store.text(passage_id)
      chars = _characters_before(text)
      places = zip(
        chars[starts[spans.firsts_S]].tolist(), chars[limits[spans.lasts_S]].tolist(), strict=True
      )
      read.append(_read_passage(passage_id, text, float(scores_K[slot]), spans, list(places)))
    return read


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ReadPassage:
  """What one passage answers.

  Attributes:
    passage_id: its id.
    score: of retrieval.
    log_weight: the score, and how high the reader scores the passage's spans in all.
    log_probs: log p(y|z,x) by answer.
    spans: where each answer stands, in characters.
    texts: each answer as it is written there.
  """

  passage_id: int
  score: float
  log_weight: float
  log_probs: dict[str, float]
  spans: dict[str, list[tuple[int, int]]]
  texts: dict[str, str]

  @property
  def says(self) -> str:
    return self.texts[max(self.log_probs, key=self.log_probs.get)]


def _read_passage(
  passage_id: int, text: str, score: float, spans: WordSpans, places: list[tuple[int, int]]
) -> _ReadPassage:
  log_probs, found, texts = {}, {}, {}
  for log_prob, (start, limit) in zip(spans.log_probs_S.tolist(), places, strict=True):
    key = _key(text[start:limit])
    if not key:
      continue
    log_probs[key] = np.logaddexp(log_probs[key], log_prob) if key in log_probs else log_prob
    found.setdefault(key, []).append((start, limit))
    texts.setdefault(key, text[start:limit])
  return _ReadPassage(
    passage_id=passage_id,
    score=score,
    log_weight=score + spans.log_total,
    log_probs=log_probs,
    spans=found,
    texts=texts,
  )


def _characters_before(text: str) -> np.ndarray:
  """Returns how many characters begin before each byte of the text, and before its end."""
  first_bytes = (np.frombuffer(text.encode(), np.uint8) & 0xC0) != 0x80
  return np.concatenate([[0], np.cumsum(first_bytes)])


class _EditedRows:
  """The embeddings of an index, some of them replaced or added."""

  def __init__(self, embeddings_NxE: np.ndarray, edited: dict[int, np.ndarray]):
    self._embeddings_NxE = embeddings_NxE
    self._edited = edited

  def __getitem__(self, ids: np.ndarray) -> np.ndarray:
    rows = self._embeddings_NxE[np.where(ids < len(self._embeddings_NxE), ids, 0)]
    for passage_id, embedding in self._edited.items():
      rows[ids == passage_id] = embedding
    return rows


def _explain(
  text: str,
  read: Sequence[_ReadPassage | None],
  store: EditedStore,
  *,
  num_answers: int,
  target: str | None,
) -> Explanation:
  valid_K = np.array([passage is not None and bool(passage.log_probs) for passage in read])
  if not valid_K[:-1].any():
    raise ValueError("no passage is left to read; undo an edit")
  keys = list(dict.fromkeys(key for passage in read if passage for key in passage.log_probs))
  if target is not None and _key(target) not in keys:
    keys.append(_key(target))
  log_probs_CxK = np.full((len(keys), len(read)), -np.inf)
  place_of = {key: place for place, key in enumerate(keys)}
  for slot, passage in enumerate(read):
    for key, log_prob in passage.log_probs.items() if valid_K[slot] else ():
      log_probs_CxK[place_of[key], slot] = log_prob
  weights_K = np.array(
    [p.log_weight if ok else -np.inf for p, ok in zip(read, valid_K, strict=True)]
  )
  weighed = weigh(weights_K, log_probs_CxK, valid_K=valid_K, corpus_K=valid_K)
  order = np.argsort(-weighed.log_probs_C, kind="stable").tolist()
  spoken = functools.partial(_spoken, read, weighed, log_probs_CxK, keys, target)
  listed = [c for c in order if np.isfinite(weighed.log_probs_C[c])]
  likeliest = listed[0]
  if target is not None:
    asked = place_of[_key(target)]
    listed = [asked, *(c for c in listed if c != asked)]
  chosen = listed[0]
  slots = np.flatnonzero(valid_K[:-1])
  scores_K = np.array([read[slot].score for slot in slots])
  retrieval_K = np.exp(scores_K - scores_K.max())
  retrieval_K /= retrieval_K.sum()
  evidence = []
  for slot, retrieved in zip(slots.tolist(), retrieval_K.tolist(), strict=True):
    passage = read[slot]
    log_probs_C = weighed.log_probs_without_KxC[slot]
    best = int(np.argmax(log_probs_C))
    evidence.append(
      Evidence(
        passage_id=passage.passage_id,
        title=store.title(passage.passage_id),
        text=store.text(passage.passage_id),
        edited=store.edited(passage.passage_id),
        retrieval_probability=retrieved,
        answer_probability=float(np.exp(log_probs_CxK[chosen, slot])),
        contribution=float(weighed.prior_K[slot] * np.exp(log_probs_CxK[chosen, slot])),
        utility=None,
        says=passage.says,
        spans=tuple(passage.spans.get(keys[chosen], ())),
        probability_without=float(np.exp(log_probs_C[chosen])),
        answer_without=spoken(best) if np.isfinite(log_probs_C[best]) else "",
      )
    )
  evidence.sort(key=lambda passage: -passage.retrieval_probability)
  return Explanation(
    query=text,
    answers=tuple(
      AnswerOption(
        text=spoken(c),
        probability=float(np.exp(weighed.log_probs_C[c])),
        probability_without_retrieval=None,
        probability_given_best=float(np.exp(log_probs_CxK[c, slots].max())),
      )
      for c in listed[:num_answers]
    ),
    likeliest=spoken(likeliest),
    null_share=None,
    passages=tuple(evidence),
  )


def _spoken(read, weighed: Weighed, log_probs_CxK, keys, target: str | None, c: int) -> str:
  """Returns an answer as the passage writes it that adds most to it."""
  with np.errstate(divide="ignore"):
    shares_K = np.log(weighed.prior_K) + log_probs_CxK[c]
  for slot in (int(np.argmax(shares_K)), *range(len(read))):
    if read[slot] is not None and keys[c] in read[slot].texts:
      return read[slot].texts[keys[c]]
  return target.strip()


def _key(text: str) -> str:
  return " ".join(text.casefold().split())
