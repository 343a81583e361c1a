"""Serves one or two models over a corpus: pages and an HTTP API."""

import dataclasses
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecondModel(choices.Checked):
  """A model shown next to the first, or one for questions if the first fills masks.

  Attributes:
    second_checkpoints: Its checkpoints. None uses those of the first if `second_step` is given, and
      otherwise opens no second model.
    second_index: Its generations; None uses those of the first.
    second_step: Step of its checkpoint; None uses the newest.
    second_generation: Its generation; None uses the newest.
  """

  second_checkpoints: str | None = None
  second_index: str | None = None
  second_step: choices.CountOrZero | None = None
  second_generation: choices.CountOrZero | None = None

  def sources(self, first: Sources) -> tuple[Sources, ...]:
    """Returns the sources of the second model, given those of the first; empty if there is none."""
    if self.second_checkpoints is None and self.second_step is None:
      if self != SecondModel():
        raise ValueError(
          f"second_index={self.second_index}, second_generation={self.second_generation} without a "
          "second model; give --second_checkpoints or --second_step"
        )
      return ()
    second = dataclasses.replace(
      first,
      checkpoints=self.second_checkpoints or first.checkpoints,
      index=self.second_index or first.index,
      step=self.second_step,
      generation=self.second_generation,
    )
    return (second,)


def serve(
  *,
  sources: Sources = Sources(),
  second: SecondModel = SecondModel(),
  names: tuple[str, str] = ("this model", "second model"),
  history: choices.CountOrZero = 6,
  max_answer_length: choices.Count = 4,
  questions: tuple[str, ...] = (),
  num_examples: choices.CountOrZero = 6,
  host: str = "127.0.0.1",
  port: choices.Port = 8080,
  limits: LimitSettings = LimitSettings(),
) -> None:
  """Opens one or two models over one corpus, and serves until told to stop.

  Args:
    sources: The model, the corpus and its index.
    second: A second model over the same corpus.
    names: Names of the two models, which differ.
    history: Number of generations whose rankings are compared; each model holds them in memory.
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
  if names[0] == names[1]:
    raise ValueError(f"both models are named {names[0]!r}; give two --names")
  with listening(host, port) as listener:
    from realm_jax.web import inspector
    from realm_jax.web.application import Example
    from realm_jax.web.inspector import AnsweringService

    models = {
      name: open_answerer(opened, max_answer_length=max_answer_length, history=history)
      for name, opened in zip(names, (sources, *second.sources(sources)), strict=False)
    }
    for model in models.values():
      model.warm_up()
    examples = [example for file in questions for example in _examples(file, num_examples)]
    if not questions and any(model.kind == "mask" for model in models.values()):
      examples = [*itertools.islice(_sentences(models[names[0]].corpus.store), num_examples)]
    app = inspector.make_app(
      AnsweringService(models),
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
