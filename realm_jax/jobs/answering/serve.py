"""Serves a model over a corpus: pages and an HTTP API."""

import itertools
import random
from collections.abc import Iterator

from realm_jax.answering.open_answerer import open_answerer
from realm_jax.checkpoints.opening import Sources
from realm_jax.corpus.passage_store import Passages
from realm_jax.data.questions import read_questions
from realm_jax.foundations import choices
from realm_jax.text.languages import language_of
from realm_jax.text.segmentation import sentence_spans
from realm_jax.text.wordpieces import MASK
from realm_jax.web.listening import LimitSettings, listening

_LONG, _PASSAGES_TRIED = 160, 1000  # characters of an example, and where it is looked for


def serve(
  *,
  sources: Sources = Sources(),
  history: choices.CountOrZero = 6,
  max_answer_length: choices.Count = 4,
  questions: tuple[str, ...] = (),
  num_examples: choices.CountOrZero = 6,
  host: str = "127.0.0.1",
  port: choices.Port = 8082,
  limits: LimitSettings = LimitSettings(),
) -> None:
  """Opens a model over a corpus, and serves until told to stop.

  Args:
    sources: The model, the corpus and its index.
    history: Number of generations whose rankings are compared, all held in memory.
    max_answer_length: Maximum wordpieces that fill a mask.
    questions: JSON Lines of questions or masked sentences; some are offered as examples. Without,
      sentences of the corpus are, for a model that fills masks.
    num_examples: Number of examples from each file.
    host: Address to listen on; 0.0.0.0 is every address of this machine.
    port: Port to listen on; 0 chooses a free one, which the printed address shows.
    limits: Which requests are accepted; on a loopback address, `hosts` are local names by default.
  """
  if missing := sources.missing():
    raise ValueError(f"no {' and no '.join(missing)}; give --checkpoints, --passages and --index")
  with listening(host, port) as listener:
    from realm_jax.web.application import Example
    from realm_jax.web.inspector import pages
    from realm_jax.web.inspector.service import AnsweringService

    model = open_answerer(sources, max_answer_length=max_answer_length, history=history)
    model.warm_up()
    examples = [example for file in questions for example in _examples(file, num_examples)]
    if not questions and model.kind == "mask":
      examples = [*itertools.islice(_sentences(model.corpus.store), num_examples)]
    app = pages.make_app(
      AnsweringService(model),
      limits=limits.with_local_names(host),
      examples=[Example(text=text, answer=answer) for text, answer in examples],
    )
    listener.serve(app)


def _examples(path: str, number: int) -> list[tuple[str, str]]:
  questions = read_questions(path)
  drawn = random.Random(0).sample(questions, min(number, len(questions)))
  return [(question.masked_text, question.answer) for question in drawn]


def _sentences(store: Passages) -> Iterator[tuple[str, str]]:
  """Yields first sentences of passages that name their title, masked, and what is masked."""
  for row in random.Random(0).sample(range(len(store)), min(len(store), _PASSAGES_TRIED)):
    title, text = store.title(row), store.text(row)
    language = language_of(text, among=store.metadata.languages)
    start, limit = sentence_spans(text, language=language)[0]
    sentence = text.encode()[start:limit].decode()
    if title and title in sentence and len(sentence) < _LONG:
      yield sentence.replace(title, MASK, 1), title
