"""A model that answers with the first word of a passage, by rule instead of a network."""

import contextlib
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from realm_jax.answering import mask_decoding
from realm_jax.answering.answerer import EditableCorpus, PastGeneration
from realm_jax.answering.mask_filler import MaskFiller, MaskModel
from realm_jax.answering.question_answerer import QuestionAnswerer
from realm_jax.answering.span_reader import QuestionModel
from realm_jax.index.vectors.exact_searcher import ExactSearcher
from realm_jax.retrieval.index_refresher import LoadedGeneration
from realm_jax.retrieval.question_retriever import BeamConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from realm_jax.web.inspector.service import AnsweringService
from tests.stores import write_store
from tests.web import browsing

WORDS = "pound euro yen dollar is the money of britain france japan old here what".split()
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS, *"<>/()'script", "alert"])
ROWS = (
  ("Britain", "Pound is the money of Britain"),
  ("France", "Euro is the money of France"),
  ("Japan", "Yen is the money of Japan"),
  ("Old", "The old money of Britain is here"),
)


def bag_of_words(ids, mask):
  """Embeds by position."""
  counts = (ids[..., None] == np.arange(TOKENIZER.vocab_size)) & mask[..., None]
  places = [TOKENIZER.vocabulary.index(word) for word in ("britain", "france", "japan")]
  return counts.any(-2)[..., places].astype(np.float32)


def embed(params, tokens):
  del params
  return jnp.asarray(bag_of_words(tokens.ids, tokens.mask))


read = jax.jit(mask_decoding.read, static_argnames="alternatives")


def read_first_word(params, batch):
  """Scores passages by position, and answers with the first word of the body."""
  del params
  queries_BxE = bag_of_words(batch.queries.query.ids, batch.queries.query.mask)
  passages_BxKxE = bag_of_words(batch.passage.ids, batch.passage.mask)
  scores_BxK = 3 * np.einsum("BE,BKE->BK", queries_BxE, passages_BxKxE)
  body = batch.passage.segments == 1
  first_BxK = np.take_along_axis(batch.passage.ids, body.argmax(-1)[..., None], -1)[..., 0]
  words_BxK = np.where(batch.passage_ids_BxK < 0, TOKENIZER.vocabulary.index("old"), first_BxK)
  logits_BxKxV = 6.0 * (words_BxK[..., None] == np.arange(TOKENIZER.vocab_size))
  masks = batch.queries.mlm_weights_BxM.shape[1]
  return read(
    scores_BxK,
    np.repeat(logits_BxKxV[:, :, None], masks, axis=2),
    batch.queries.mlm_weights_BxM,
    valid_BxK=batch.valid_BxK,
    alternatives=3,
    targets_BxM=batch.queries.mlm_targets_BxM,
  )


def score_first_word(params, batch):
  """Scores passages by position, and the first word of the body highest among its spans."""
  del params
  queries_BxE = bag_of_words(batch.query.ids, batch.query.mask)
  scores_BxK = 3 * np.einsum("BE,BKE->BK", queries_BxE, batch.embeddings_BxRxE)
  body_BxKxT = (batch.joint.segments == 1) & batch.joint.mask
  body_BxKxT[..., :-1] &= body_BxKxT[..., 1:]  # not the final [SEP]
  logits_BxKxTxW = np.full((*batch.joint.shape, 2), np.finfo(np.float32).min, np.float32)
  logits_BxKxTxW[..., 0][body_BxKxT] = 0
  logits_BxKxTxW[..., :-1, 1][body_BxKxT[..., :-1] & body_BxKxT[..., 1:]] = -1
  np.put_along_axis(logits_BxKxTxW[..., 0], body_BxKxT.argmax(-1)[..., None], 6, axis=-1)
  return np.where(batch.valid_BxR, scores_BxK, -1e38), logits_BxKxTxW


@pytest.fixture(scope="session")
def store(tmp_path_factory):
  passages = [
    {"title": title, "text": text, "title_ids": TOKENIZER.encode(title)} for title, text in ROWS
  ]
  directory = tmp_path_factory.mktemp("store")
  return write_store(directory, passages, tokenizer=TOKENIZER, max_passage_length=24)


EMBEDDINGS = np.array([(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.9, 0, 0)], np.float32)
EMBEDDINGS_BEFORE = np.array([(0, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0)], np.float32)


@pytest.fixture
def make_corpus(store):
  """`make_corpus(loaded)` lays the corpus over a generation and over the one before it."""

  def make(loaded):
    before = ExactSearcher(EMBEDDINGS_BEFORE)
    past = (
      PastGeneration(generation=0, training_step=10, searcher=before, params=None),
      PastGeneration(generation=1, training_step=20, searcher=loaded.searcher, params={}),
    )
    return EditableCorpus(
      store=store,
      loaded=loaded,
      tokenizer=TOKENIZER,
      embed_passage=lambda tokens: embed({}, tokens),
      passage_length=24,
      past=past,
    )

  return make


GENERATION = {
  "generation": 1,
  "searcher": ExactSearcher(EMBEDDINGS),
  "training_step": 20,
  "created": 0.0,
}
QUESTION_MODEL = QuestionModel(
  params={},
  encode_query=embed,
  read=score_first_word,
  query_length=12,
  step=30,
  beam=BeamConfig(beam_size=2, num_read=2, joint_length=40),
  max_span_width=2,
)
MASK_MODEL = MaskModel(
  params={},
  encode_query=embed,
  read=read_first_word,
  query_length=12,
  step=20,
  retrieval=RetrievalConfig(num_passages=3, passage_length=24, joint_length=40),
  max_masks=2,
)


@pytest.fixture
def answerer(make_corpus):
  loaded = LoadedGeneration(**GENERATION, embeddings_NxE=EMBEDDINGS)
  return QuestionAnswerer(QUESTION_MODEL, make_corpus(loaded))


@pytest.fixture
def make_filler(make_corpus):
  """`make_filler(max_answer_length, **settings)` makes a filler of a model with settings."""

  def make(max_answer_length=1, **settings):
    model = dataclasses.replace(MASK_MODEL, **settings)
    corpus = make_corpus(LoadedGeneration(**GENERATION))
    return MaskFiller(model, corpus, max_answer_length=max_answer_length)

  return make


@pytest.fixture
def filler(make_filler):
  return make_filler()


@pytest.fixture
def service(filler):
  return AnsweringService(filler)


@pytest.fixture
def browser():
  """A browser of one test, because its event loop lets no other test of the process have one."""
  if browsing.CHROMIUM is None:
    pytest.skip("no chromium on this machine")
  playwright = pytest.importorskip("playwright.sync_api", reason="the extra `browser` is missing")
  with playwright.sync_playwright() as driver:
    yield driver.chromium.launch(executable_path=browsing.CHROMIUM, args=["--no-sandbox"])


_HARMLESS = re.compile("status of 422|^Autofocus processing was blocked")


@pytest.fixture
def open_app(browser):
  """`open_app(app, **settings)` opens its first page and fails on any browser error."""
  complaints, elsewhere = [], []
  with contextlib.ExitStack() as stack:

    def open_app(app, **settings):
      address = stack.enter_context(browsing.served(app))
      context = browser.new_context(**settings)
      stack.callback(context.close)
      page = context.new_page()
      page.set_default_timeout(20_000)
      # A form that is refused is no error of the page, though Chromium says so.
      page.on("console", lambda m: "status of 422" in m.text or complaints.append(m.text))
      page.on("pageerror", lambda error: complaints.append(str(error)))
      page.on(
        "request", lambda request: request.url.startswith(address) or elsewhere.append(request.url)
      )
      page.goto(address)
      return page

    yield open_app
  assert complaints == [] and elsewhere == []


@pytest.fixture
def keep():
  """`keep(page, name)` leaves a screenshot in `build/screenshots`."""

  def keep(page, name):
    browsing.SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=browsing.SCREENSHOTS / f"{name}.png", full_page=True)

  return keep
