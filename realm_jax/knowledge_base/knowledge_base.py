"""A knowledge base: documents that come and go, in one folder, and what searches them."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import TYPE_CHECKING, Any

from realm_jax.corpus.documents import Document
from realm_jax.foundations import choices
from realm_jax.knowledge_base import folder, language_model
from realm_jax.knowledge_base.folder import Folder
from realm_jax.knowledge_base.learning import feedback
from realm_jax.knowledge_base.learning.feedback import Passages
from realm_jax.knowledge_base.learning.past_questions import PastQuestion, normalized
from realm_jax.knowledge_base.learning.search import find
from realm_jax.knowledge_base.learning.use_memory import Memory
from realm_jax.knowledge_base.store import commits
from realm_jax.knowledge_base.store.edit import Changes, listed
from realm_jax.knowledge_base.store.hits import Answer, Hits
from realm_jax.knowledge_base.store.query import Query, check_question, takes
from realm_jax.knowledge_base.store.texts import Texts, put
from realm_jax.text.languages import choose_languages

if TYPE_CHECKING:
  from realm_jax.evaluation.probes import Choice
  from realm_jax.knowledge_base.learning.evaluation import Evaluation


class KnowledgeBase:
  """Documents in a folder, to search by words and, with an encoder, by meaning.

  Threads and processes may search and write concurrently, with an object each or the same; one
  process writes at a time. An object is pickled and copied as its path. A process that was forked
  after an encoder had run cannot use it; one that was spawned can.

  Examples:
    >>> moss = {"id": "moss", "text": "Moss grows in the shade.", "year": 1958}
    >>> kb = KnowledgeBase.create("kb", [moss], language="en")
    >>> kb.add([{"id": "oak", "title": "Oak", "text": "An oak is tall.", "year": 1960}]).added
    1
    >>> kb.search("how tall is an oak", k=1)
      0.748  oak  Oak  year=1960
             An oak is tall.
    >>> [hit.id for hit in kb.search("tall moss", where={"year": {"lt": 1960}})]
    ['moss']
    >>> kb.update([{**moss, "text": "Moss is small."}]).updated
    1
    >>> print(kb.delete("oak"))
    documents: 1 deleted
    >>> "oak" in kb, len(KnowledgeBase("kb"))
    (False, 1)

  Args:
    path: The folder, which `create` has made, or the address in an object store that `publish` has
      copied it to. Of the latter `$REALM_CACHE` has a copy, which follows it and only searches.
    encoder: What `create` was given, if that was an object; the folder has any other.

  Raises:
    FileNotFoundError: If there is no knowledge base.
    ValueError: If it cannot be read, or was made with another encoder.
  """

  def __init__(self, path: str | os.PathLike, *, encoder: Any = None):
    self._given, self.path = os.fspath(path).rstrip("/") or "/", folder.located(path)
    self._folder = Folder(self.path, encoder=encoder)

  @classmethod
  def create(
    cls,
    path: str | os.PathLike,
    texts: Texts = (),
    *,
    language: str | Sequence[str] = "auto",
    passage_words: int = 100,
    encoder: Any = None,
    reader: str | os.PathLike | None = None,
    show: Callable[[Any], object] = lambda _: None,
  ) -> "KnowledgeBase":
    """Makes a knowledge base.

    Args:
      path: A folder that is missing or empty.
      texts: Its first documents; see `add`.
      language: Languages of the documents as BCP 47 tags, which decide where sentences end and
        which words are the same; "auto" detects them, and `str` of the knowledge base names them.
      passage_words: Words of a passage, which is what a search finds, at most.
      encoder: What embeds passages, to find them by meaning as well: the directory of a checkpoint
        with its vocabulary, or of a sentence encoder from Hugging Face, also by OWNER/NAME on the
        hub, which is copied; or an object with `encode`, or `encode_query` and `encode_document`,
        or a function, each of a list of strings; or "sentence-transformers:NAME_OR_DIRECTORY",
        which that library loads. An object is given again to open the knowledge base.
      reader: Directory of what answers questions; see `add_reader`.
      show: Gets what `add` returns for the first documents.

    Raises:
      FileNotFoundError: If the encoder or texts are missing; nothing is left of the folder then.
      ValueError: If the folder has something else, or `encoder` or `texts` are refused.
    """
    directory = folder.located(path)
    folder.check_writable(directory)
    languages = choose_languages([language] if isinstance(language, str) else language, ())
    settings = commits.Settings(
      languages=languages or commits.DETECTED, passage_words=passage_words
    )
    with folder.made(directory) as ids:
      given = folder.begin(directory, settings, encoder=encoder, ids=ids)
      made = cls(path, encoder=given)
      if reader is not None:
        made.add_reader(reader)
      if texts is not None and not (isinstance(texts, Sized) and len(texts) == 0):
        show(made.add(texts))
    return made

  def __reduce__(self):
    if (given := self._folder.given) is None:
      return type(self), (self.path,)
    return functools.partial(type(self), encoder=given.address or given.given), (self.path,)

  @property
  def num_documents(self) -> int:
    return self._folder.newest().num_documents

  @property
  def num_passages(self) -> int:
    return self._folder.newest().num_passages

  def __len__(self) -> int:
    return self.num_documents

  def __contains__(self, id: str) -> bool:
    return self._folder.newest().find([id]) != [None]

  def __repr__(self) -> str:
    snapshot = self._folder.newest()
    return (
      f"KnowledgeBase({self._given!r}, documents={snapshot.num_documents}, "
      f"passages={snapshot.num_passages})"
    )

  def __str__(self) -> str:
    return f"{self._given}: {self._folder.newest().summary}"

  @takes(Query)
  def search(self, query: Query) -> Hits:
    """Finds the best passages for a question; `Query` has the keywords and what they mean.

    Returns:
      The best passages, best first. Without an encoder they are those that share a word with the
      question, and scores are BM25's. With one, scores are sums of the encoder's and BM25's, each
      in standard deviations from its mean over all passages, unless `train` chose another ranking.

    Raises:
      ValueError: If a field of the query is out of its bounds, no document has a field of `where`
        that a condition needs, or an encoder that is needed is missing, or what `min_answerable`
        needs was not learned.
    """
    snapshot = self._folder.newest()
    memory, model = self._folder.remembered(snapshot), self._folder.answerability(snapshot)
    if memory is None:
      memory, model = Memory(), None  # which needs them
    return find(snapshot, query, memory=memory, model=model).of(self.document)

  def warm(self) -> None:
    """Loads what searches need, so that none of them waits for it."""
    self._folder.warm()

  @takes(Query)
  def answer(self, query: Query) -> Answer:
    """Answers a question from the passages that a search finds for it; see `Query`.

    Raises:
      ValueError: See `search`; or if there is no reader, or `generate` returns no text;
        `language_model.GeneratorError` if a `ChatServer` gets no answer.
    """
    if query.generate is not None:
      query = language_model.standalone(query)
      return language_model.answer(query.question, self.search(**vars(query)), query.generate)
    name = self._folder.newest().commit.settings.reader
    if not name:
      raise ValueError(
        f"{self.path} has no reader, so it can only search; give a BertForQuestionAnswering, by "
        "its directory or OWNER/NAME, or the workdir of a `realm finetune`: `realm kb add KB "
        "--reader=READER`, or add_reader(READER); or let a language model answer: --generator=URL, "
        "or generate="
      )
    folder.check_can_compute()
    from realm_jax.knowledge_base.encoders.models import open_reader  # late, because it imports JAX

    reader = open_reader(os.path.abspath(commits.model_path(self._folder.path, name)))
    hits = self.search(**{**vars(query), "k": reader.model.beam.num_read})
    passages = [(hit.title, hit.text) for hit in hits]
    answers = reader.read_passages(query.question, passages).answers if hits else ()
    if not answers:
      return Answer(question=query.question, hits=hits)
    return Answer(
      question=query.question,
      text=answers[0].text,
      probability=answers[0].probability,
      hits=hits,
      place=answers[0].passage_id,
      start=answers[0].start_char,
    )

  def add_reader(self, path: str | os.PathLike) -> None:
    """Copies what answers questions into the knowledge base, in place of what did so before.

    Args:
      path: Workdir of a fine-tuning, another directory with a checkpoint of a span reader and its
        vocabulary, or a `BertForQuestionAnswering`: its directory, or OWNER/NAME on the hub.

    Raises:
      FileNotFoundError: If there is none.
      ValueError: If the checkpoint was not fine-tuned for questions.
    """
    from realm_jax.knowledge_base.encoders import models  # late, because it imports JAX

    with self._folder.exclusively() as edit:
      name = models.copy_model(self.path, path, reads=True)
      edit.settings = dataclasses.replace(edit.settings, reader=name)

  def train(
    self, *, questions: str | os.PathLike | None = None, minutes: float | None = None
  ) -> "Choice":
    """Makes searches better, if measurement says so: learns from questions, or chooses what ranks.

    Questions are remembered, as `feedback` does. Then an adapter of their embeddings is trained,
    and the encoder's own tower of questions; passages keep their embeddings. A fifth of the
    questions is only asked, and what finds answers to more of them among five passages is used,
    if it is shown to, and to find documents by their titles as before: adapter or tower, alone or
    fused with words, another ranking, or a search without memory. From then on hits know the
    probability that they have an answer.

    Without questions those that were fed back are learned from, if there are 100. Otherwise it
    chooses between words, the encoder and both. Titles have to find their documents, and sentences
    those that they were taken from, in a copy of at most 20,000 documents without either, which is
    embedded anew. What ranks now stays, unless another is better in one probe and worse in none, by
    95 % intervals.

    Args:
      questions: JSON Lines with `question` and `answer`, of which a fifth, at most 500, is only
        asked; there must be at least 100.
      minutes: When to stop learning from questions, at the latest; 30 by default.

    Returns:
      The choice, which searches follow from now on, and its figures.

    Raises:
      FileNotFoundError: If there are no such questions.
      ValueError: If there is no passage, questions are too few, or there are none and no encoder.
    """
    folder.check_writable(self.path)
    from realm_jax.knowledge_base import training_questions

    asked = training_questions.find(self._folder, questions, minutes=minutes)
    from realm_jax.knowledge_base import choosing  # late, because it imports JAX

    if asked is None:
      return choosing.choose_ranking(self._folder, create=type(self).create)
    seconds = 60 * (30 if minutes is None else minutes)
    return choosing.train(self._folder, asked, seconds=seconds)

  def evaluate(self, path: str | os.PathLike) -> "Evaluation":
    """Measures how well questions find what they should: by words, by the encoder and by both.

    If past questions are remembered, each ranking is measured without and with them; what was said
    about a question itself is left out.

    Args:
      path: A collection in BEIR's format, a folder with `queries.jsonl` and `qrels/test.tsv` that
        grades documents by their ids; or a file of JSON Lines with `question` and `answer`, of
        which a passage among the best k must have an answer (`recall@k`).

    Returns:
      The figures, which print as a table with confidence intervals.

    Raises:
      FileNotFoundError: If there is no such collection or file.
      ValueError: If it cannot be read, or grades no document that is found.
    """
    from realm_jax.knowledge_base.learning import evaluation  # late, because it imports JAX

    return evaluation.evaluate(
      snapshot := self._folder.newest(),
      os.fspath(path),
      memory=self._folder.memory.newest(),
      model=self._folder.answerability(snapshot),
    )

  def document(self, id: str) -> Document | None:
    """Returns a document by its id, or None."""
    (place,) = (snapshot := self._folder.newest()).find([id])
    return place and snapshot.document(place)

  def documents(
    self, *, first: int = 0, count: int = 50, characters: int | None = None
  ) -> list[Document]:
    """Returns some of the documents, in an order that changes only with them.

    Args:
      characters: Of their texts, no more than these are read; None reads all.
    """
    if first < 0 or count < 0:
      raise ValueError(f"first={first}, count={count}; neither is below 0")
    snapshot = self._folder.newest()
    places = snapshot.documents(slice(first, first + count))
    return [snapshot.document(place, characters=characters) for place in places]

  def examples(self, count: int = 1) -> list[str]:
    """Returns titles of documents, or how they begin, to try a search with."""
    return self._folder.newest().examples(count)

  @property
  def fields(self) -> dict[str, Any]:
    """The fields of documents by name, each with a value that it has."""
    return {**self._folder.newest().fields}

  @property
  def commit(self) -> commits.Commit:
    """The newest commit, with its segments and what led to it."""
    return self._folder.newest().commit

  @property
  def history(self) -> tuple[commits.Change, ...]:
    """What was changed, newest first: the last hundred changes."""
    return self.commit.history

  def add(self, texts: Texts) -> Changes:
    """Adds documents. Those that are there already, with the same content, are skipped.

    Args:
      texts: A folder, a file or a glob pattern, or several, of text, Markdown, PDF, office, HTML,
        mail, JSON Lines, CSV, TSV or Parquet, or an iterable of mappings with `id`, `text` or
        `title`, and other fields, also as a data frame. The id of a text file is its path below the
        folder, also if the file is given alone after its folder once was, or that has moved.

    Raises:
      DirectoryInUseError: If another process writes.
      ValueError: If a document is there with another content, two have one id, or nothing could be
        read. Nothing is added.
    """
    with self._folder.exclusively() as edit:
      return put(edit, texts, path=self.path, change="add")

  def update(self, texts: Texts) -> Changes:
    """Adds documents, which replace those of the same id; see `add`."""
    with self._folder.exclusively() as edit:
      return put(edit, texts, path=self.path, change="update")

  def sync(self, texts: Texts) -> Changes:
    """Adds what is new, replaces what has changed, and deletes what is there no more.

    Deleted are documents of files that were where these are, or, if these are records, of other
    records. Those of a file that cannot be read stay; if no file can, nothing is changed and
    ValueError is raised. A file that has not changed is not read.
    """
    with self._folder.exclusively() as edit:
      return put(edit, texts, path=self.path, change="sync")

  def delete(self, ids: str | Iterable[str]) -> Changes:
    """Deletes documents.

    Raises:
      ValueError: If there is none with one of the ids. Nothing is deleted.
    """
    ids = [ids] if isinstance(ids, str) or not isinstance(ids, Iterable) else ids
    with self._folder.exclusively() as edit:
      ids = [*dict.fromkeys(map(str, ids))]
      places = edit.before.find(ids)
      if unknown := [id for id, place in zip(ids, places, strict=True) if place is None]:
        raise ValueError(f"{self.path} has no document {listed(unknown)}; nothing was deleted")
      edit.delete(filter(None, places))
    return Changes(deleted=edit.counts["deleted"])

  def feedback(
    self,
    question: str,
    *,
    answer: str | Sequence[str] = (),
    useful: Passages = (),
    not_useful: Passages = (),
  ) -> PastQuestion:
    """Remembers which passages answer a question; the same question ranks them higher from now on.

    Questions like it do, too, as far as that would have helped past ones. The question, its
    embedding and what is given here are kept until `forget`, or until the documents are deleted.

    Args:
      answer: The answer, or several right ones. The best passage that has one counts as useful.
      useful: A hit, the id of a document whose best passage is meant, or a pair of an id and the
        place of a passage; or several.
      not_useful: The same, to rank lower.

    Returns:
      What is remembered of the question, with what was said before; nothing is `useful` if no
      passage has the answer.

    Raises:
      DirectoryInUseError: If another process writes.
      ValueError: If nothing is said, or of one passage that it was useful and was not, or there is
        no such document. Nothing is remembered.
    """
    check_question(question)
    with folder.lock(self.path):
      remember = functools.partial(feedback.remember, self._folder.memory, self._folder.newest())
      return remember(question, answer=answer, useful=useful, not_useful=not_useful)

  def past_questions(self, *, first: int = 0, count: int = 50) -> list[PastQuestion]:
    """Returns some of the questions that are remembered, newest first."""
    if first < 0 or count < 0:
      raise ValueError(f"first={first}, count={count}; neither is below 0")
    return self._folder.memory.about(self._folder.newest())[::-1][first : first + count]

  def past_question(self, question: str) -> PastQuestion | None:
    """Returns what is remembered of a question, or None."""
    return self._folder.memory.newest().get(normalized(question))

  def take_back(self, question: str, passages: Passages) -> PastQuestion | None:
    """Forgets what was said about passages of a question; returns what is left, or None.

    Args:
      passages: See `feedback`; with the id of a document, all of its passages.

    Raises:
      ValueError: If nothing was said about them.
    """
    check_question(question)
    with folder.lock(self.path):
      return feedback.take_back(
        self._folder.memory, self._folder.newest(), question, passages=passages
      )

  def forget(self, question: str | Iterable[str]) -> int:
    """Forgets questions and what was said about them; returns how many there were.

    Raises:
      ValueError: If one of them is not remembered. Nothing is forgotten.
    """
    if isinstance(question, str) or not isinstance(question, Iterable):
      question = [question]
    questions = list(question)
    for one in questions:
      check_question(one)
    with folder.lock(self.path):
      return self._folder.memory.forget(questions)

  def compact(self, *, purge: bool = False) -> None:
    """Merges all segments into one, and leaves nothing of what was deleted in their files.

    Changes merge segments when there are many, so this is needed only for what has to go. Programs
    that have the folder open read the files that they had until their next search.

    Args:
      purge: Also removes ids of deleted documents from the history, embeddings of a change that was
        killed, and what was said about a question before it was said anew. The next `publish`
        removes what was published before at once, even under readers that are copying it.
    """
    self._folder.compact(purge=purge)

  def publish(self, address: str) -> int:
    """Copies to an object store what is not there, then the commit, which readers follow.

    Args:
      address: Such as `gs://bucket/kb`, where nothing is or an older commit.

    Returns:
      The number of files that were copied.

    Raises:
      ValueError: If it is no address, or has something else.
    """
    return self._folder.publish(address)


@dataclasses.dataclass(frozen=True)
class Opening(choices.Checked):
  """A knowledge base to open.

  Attributes:
    path: The folder of the knowledge base.
    encoder: "sentence-transformers:NAME_OR_DIRECTORY", if it was made with that; a model that only
      the folder names is not loaded.
  """

  path: str
  encoder: str | None = None

  def open(self) -> KnowledgeBase:
    return KnowledgeBase(self.path, encoder=self.encoder)
