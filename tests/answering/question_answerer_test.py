import dataclasses

import numpy as np
import pytest

from realm_jax.answering.answerer import EditableCorpus
from realm_jax.answering.question_answerer import QuestionAnswerer
from realm_jax.answering.span_reader import QuestionModel
from realm_jax.corpus.edits import Edits
from realm_jax.index.fused_searcher import Hybrid
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.index.words.bm25 import Bm25Retriever
from realm_jax.index.words.postings import Postings
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

WORDS = ["who", "the", "u", ".", "s", "cafe", "in", "par", "##is", "1", ",", "000", "é"]
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
TEXTS = ("The U.S., Café", "in Paris 1,000", "the cafe in  Paris")
EMBEDDINGS_NxE = np.array([[3.0], [2.0], [1.0]], np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  passages = [{"title": f"T{row}", "text": text} for row, text in enumerate(TEXTS)]
  directory = tmp_path_factory.mktemp("store")
  return write_store(directory, passages, tokenizer=TOKENIZER, max_passage_length=20)


def spans_of(*wanted, widths=6):
  """Reads the wanted spans of words `(slot, first word, last word)`, the first best."""

  def read(params, batch):
    logits_BxKxTxW = np.full((*batch.joint.shape, widths), np.finfo(np.float32).min, np.float32)
    for b, body in enumerate(batch.query.mask.sum(-1)):
      for rank, (slot, first, last) in enumerate(wanted):
        logits_BxKxTxW[b, slot, body + first, last - first] = 10.0 * (rank == 0) - rank
    return batch.embeddings_BxRxE[..., 0], logits_BxKxTxW

  return read


@pytest.fixture
def make_answerer(store):
  def make(read, *, query_length=8, hybrid=None, **settings):
    model = QuestionModel(
      params={},
      encode_query=lambda params, tokens: np.ones((len(tokens.ids), 1), np.float32),
      read=read,
      query_length=query_length,
      beam=BeamConfig(beam_size=2, num_read=2, joint_length=24),
      max_span_width=6,
    )
    loaded = LoadedGeneration(
      generation=0,
      searcher=ExactSearcher(EMBEDDINGS_NxE),
      training_step=0,
      created=0.0,
      embeddings_NxE=EMBEDDINGS_NxE,
    )
    corpus = EditableCorpus(
      store=store,
      loaded=loaded,
      tokenizer=TOKENIZER,
      passage_length=20,
      embed_passage=lambda tokens: np.ones((len(tokens.ids), 1), np.float32),
      hybrid=hybrid,
    )
    return QuestionAnswerer(model, corpus, batch_size=2, **settings)

  return make


def test_answers_are_sliced_from_the_raw_text(make_answerer):
  # Words of passage 0: The U . S . , Café; of passage 1: in par ##is 1 , 000.
  answerer = make_answerer(spans_of((0, 1, 4), (0, 6, 6), (1, 3, 5)))
  (found,) = answerer.answer(["who"], num_answers=5)
  assert [answer.text for answer in found.answers] == ["U.S.", "Café", "1,000"]
  for answer in found.answers:
    text = TEXTS[answer.passage_id]
    assert text[answer.start_char : answer.limit_char] == answer.text
    assert text.encode()[answer.start_byte : answer.limit_byte].decode() == answer.text
    assert answer.title == f"T{answer.passage_id}"
  assert found.passage_ids == (0, 1)
  assert found.scores == (3.0, 2.0)
  assert sum(found.retrieval_probabilities) == pytest.approx(1)
  first, *others = (answer.probability for answer in found.answers)
  assert all(first > other for other in others)


def test_given_passages_are_read_without_an_index(make_answerer):
  reader = dataclasses.replace(
    make_answerer(spans_of((0, 1, 4))).reader,
    embed_passage=lambda tokens: tokens.mask.sum(-1, keepdims=True).astype(np.float32),
  )
  found = reader.read_passages("who", [("", TEXTS[1]), ("long", TEXTS[0])])
  assert found.passage_ids == (1, 0) and found.titles == ("long", "")
  assert [(answer.text, answer.passage_id) for answer in found.answers] == [("U.S.", 1)]
  (alone,) = reader.read_passages("who", [("", TEXTS[0])]).answers
  assert (alone.text, alone.passage_id, alone.retrieval_probability) == ("U.S.", 0, 1.0)
  with pytest.raises(ValueError, match="have no embeddings"):
    dataclasses.replace(reader, embed_passage=None).read_passages("who", [("", TEXTS[0])])


def test_spaced_text_is_that_of_the_released_code(make_answerer):
  answerer = make_answerer(spans_of((0, 1, 4), (1, 3, 5)), answer_text="spaced")
  (found,) = answerer.answer(["who"], num_answers=2)
  assert [answer.text for answer in found.answers] == ["U . S .", "1 , 000"]
  with pytest.raises(ValueError, match="answer_text='tokens'"):
    make_answerer(None, answer_text="tokens")


def test_an_answer_is_whole_words_and_counts_once(make_answerer):
  answerer = make_answerer(spans_of((1, 2, 2), (1, 1, 1), (1, 1, 2), (0, 0, 0)))
  (found,) = answerer.answer(["who"], num_answers=5)
  assert [answer.text for answer in found.answers] == ["Paris", "The"]


def test_each_question_has_its_own_answers_whatever_the_batch(make_answerer):
  answerer = make_answerer(spans_of((0, 0, 0)))
  questions = ["who", "who the u", "who the", "the", "in"]
  found = answerer.answer(questions)
  assert [answers.question for answers in found] == questions
  assert all([a.text for a in answers.answers] == ["The"] for answers in found)
  assert answerer.retrieve(questions, k=3).ids_BxK.tolist() == [[0, 1, 2]] * 5


def test_a_hybrid_retriever_reads_what_the_words_find_and_follows_edits(make_answerer):
  hybrid = Hybrid(
    bm25=Bm25Retriever([Postings.build(TEXTS)]),
    weight=0.25,
    embeddings_IxE=EMBEDDINGS_NxE,
  )
  answerer = make_answerer(spans_of((0, 1, 1)), hybrid=hybrid)
  questions = ["who in 1,000", "the cafe in Paris", "café"]
  assert [found.passage_ids[0] for found in answerer.answer(questions)] == [1, 2, 0]
  assert answerer.retrieve(questions, k=1).ids_BxK.tolist() == [[1], [2], [0]]

  edits = Edits().with_passage(2, None)
  edits = edits.with_passage(0, answerer.corpus.write("", "the cafe in Paris"))
  (explanation,) = answerer.explain([questions[1]], edits=edits)
  assert explanation.passages[0].passage_id == 0
  assert 2 not in {passage.passage_id for passage in explanation.passages}
