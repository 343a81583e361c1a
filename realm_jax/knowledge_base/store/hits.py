"""Results of a search, for programs, terminals and notebooks."""

import dataclasses
import html
import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from realm_jax.corpus.documents import Document
from realm_jax.corpus.formats.outline import Mark
from realm_jax.text.analysis import Analyzer
from realm_jax.text.terminal import line, plain

_WIDTH = 96
_DOUBTED = 10  # unknown numbers that are named
_NAMED = 5  # past questions


_LIKELY = {0.9: "almost certainly", 0.7: "probably", 0.4: "perhaps", 0.1: "probably not"}


def likely(probability: float) -> str:
  """Returns a probability in words, with the figure: `probably (74 %)`."""
  word = next((word for least, word in _LIKELY.items() if probability >= least), "hardly")
  return f"{word} ({100 * probability:.0f} %)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hit:
  """A passage that was found.

  Attributes:
    id: The document that it is of.
    passage: Its place in the document, from 0.
    start: Its first character in the text of the document.
    end: The one after its last.
    page: Where it begins, from 1; None if the document has no pages.
    heading: Of the section that it begins in; "" for none.
    fields: Other fields of the document.
    words: The share of its score that its words have.
    encoder: The share that its embedding has.
    remembered: The share that past questions have.
    useful_for: A past question like this one that it was useful for; "" if there is none.
    same: Other documents that have nearly the same passage, where only one is asked for.
    around: The passage with those before and after it, where they are asked for.
  """

  score: float
  id: str
  title: str
  text: str
  passage: int
  start: int = 0
  end: int = 0
  page: int | None = None
  heading: str = ""
  fields: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
  words: float = 0.0
  encoder: float = 0.0
  remembered: float = 0.0
  useful_for: str = ""
  same: tuple[str, ...] = ()
  around: str = ""

  @classmethod
  def of(cls, **fields: Any) -> "Hit":
    """Returns a hit several times as fast as the constructor of a frozen class."""
    hit = object.__new__(cls)
    vars(hit).update(fields)
    return hit

  @property
  def reordered(self) -> float:
    """The share of its score that its age or a reranker has; all shares add up to the score."""
    return self.score - self.words - self.encoder - self.remembered

  @property
  def shares(self) -> str:
    """The shares of its score, in words."""
    shares = {"words": self.words, "encoder": self.encoder, "past questions": self.remembered}
    shares |= {"order": self.reordered}
    return " + ".join(f"{name} {share:.3f}" for name, share in shares.items() if abs(share) > 1e-6)

  def document(self) -> Document:
    """Returns its document.

    Raises:
      ValueError: If that was deleted or changed meanwhile, or no search has made the hit.
    """
    read = getattr(self, "_read", None)
    found = read and read(self.id)
    if not found or found.text[self.start : self.end] != self.text:
      raise ValueError(f"{self.id!r:.60} has changed since it was found; search again")
    return found

  def section(self) -> str:
    """Returns the text under its heading, this included: up to the next heading of any level."""
    document = self.document()
    marks = itertools.pairwise([Mark(0, 0, ""), *document.outline])
    starts = [mark.start for before, mark in marks if mark.heading != before.heading]
    first = max((start for start in starts if start <= self.start), default=0)
    return document.text[first : min((s for s in starts if s > self.start), default=None)].strip()

  @property
  def location(self) -> str:
    """Its page and heading, in words; "" if it has neither."""
    page = f"page {self.page}" if self.page else ""
    return ", ".join(filter(None, [page, self.heading if self.heading != self.title else ""]))

  @property
  def named(self) -> str:
    """Its document and where it is there, in a line."""
    return f"{self.id}  {self.title}" + (f"  ({self.location})" if self.location else "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Earned:
  """How far past questions move passages for a question like them, and why.

  Attributes:
    strength: Between 0 and 0.8, as a share of the distance of the best score from the mean.
    questions: Past questions that it would have helped, those that count most first.
  """

  strength: float = 0.0
  questions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Hits(Sequence[Hit]):
  """The passages found for a question, best first.

  Attributes:
    languages: Those of the documents, which decide what is a word of the question.
    asked: What was searched for, the question with a word of the one before; feedback is about it.
    answerable: The probability that an answer is among the best passages, of at most 20, also where
      it is too low to return them; None if nothing has learned it.
    earned: How far past questions moved passages, if the search was asked to explain itself.
  """

  question: str
  found: tuple[Hit, ...]
  languages: tuple[str, ...] = dataclasses.field(repr=False, compare=False)
  answerable: float | None = None
  earned: Earned | None = None
  asked: str = dataclasses.field(default="", repr=False, compare=False)

  def __len__(self) -> int:
    return len(self.found)

  def __getitem__(self, place):
    return self.found[place]

  def __repr__(self) -> str:
    return self.shown(lambda word: word)

  def of(self, read: Callable[[str], Document | None]) -> "Hits":
    """Returns these hits, whose documents `read` returns by their ids."""
    for hit in self.found:
      object.__setattr__(hit, "_read", read)  # no field, because it is no part of what was found
    return self

  def shown(self, mark: Callable[[str], str]) -> str:
    """Returns the hits as lines of text, with `mark` applied to the words of the question."""
    lines = [each for hit in self.found for each in self._lines(hit, mark)] or ["(nothing found)"]
    if self.answerable is not None:
      lines.append(f"(an answer is {likely(self.answerable)} among the best)")
    if self.earned is not None:
      named = map(plain, self.earned.questions[:_NAMED])
      helped = "; ".join(textwrap.shorten(one, _WIDTH) for one in named)
      why = f", which would have helped: {helped}" if helped else ""
      lines.append(f"(similar questions move passages by {self.earned.strength:g}{why})")
    return "\n".join(lines)

  def _lines(self, hit: Hit, mark: Callable[[str], str]) -> Iterator[str]:
    fields = "".join(f"  {name}={value}" for name, value in hit.fields.items())
    yield line(f"{hit.score:7.3f}  {hit.named}{fields}")
    text, lines = (hit.around, None) if hit.around else (hit.text, 4)
    for part in textwrap.wrap(plain(text), _WIDTH, max_lines=lines, placeholder=" ..."):
      yield f"         {self._marked(part, mark, str)}"
    if hit.same:
      yield line(f"         (nearly the same: {', '.join(hit.same)})")
    if hit.useful_for:
      yield f"         (useful for: {textwrap.shorten(plain(hit.useful_for), _WIDTH)})"
    if self.earned is not None:
      yield f"         ({hit.shares})"

  def _marked(self, text: str, mark: Callable[[str], str], other: Callable[[str], str]) -> str:
    pieces, last = [], 0
    for start, end in self.spans(text):
      pieces += [other(text[last:start]), mark(text[start:end])]
      last = end
    return "".join([*pieces, other(text[last:])])

  def spans(self, text: str) -> list[tuple[int, int]]:
    """Returns where a text has words of the question, inflected or not, in order and apart."""
    return Analyzer(self.languages).marks(self.question, text)

  def _repr_html_(self) -> str:
    mark = lambda words: f"<mark>{html.escape(words)}</mark>"  # noqa: E731
    rows = "".join(
      f"<tr><td>{hit.score:.3f}</td><td>{html.escape(hit.id)}</td>"
      f"<td>{html.escape(f'{hit.title} {hit.location}'.strip())}</td>"
      f"<td>{self._marked(hit.text, mark, html.escape)}</td></tr>"
      for hit in self.found
    )
    return (
      f"<p>{html.escape(self.question)}</p><table>"
      f"<tr><th>score</th><th>id</th><th>title</th><th>text</th></tr>{rows}</table>"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
  """The answer to a question, and what it was read from.

  Attributes:
    text: The answer; "" if there is none. A reader's is as a passage has it.
    probability: A reader's: among all that could be an answer in the passages read.
    hits: The passages read, as the search ranks them.
    place: Which of them has a reader's answer.
    start: Its first character there.
    cited: The places of the passages that a generated answer cites, in its order. The text has them
      as numbers from 1, such as [2]. None if a reader answered.
    unknown: Numbers that a generated answer cites and no passage has.
  """

  question: str
  text: str = ""
  probability: float | None = 0.0
  hits: Hits
  place: int = 0
  start: int = 0
  cited: tuple[int, ...] | None = None
  unknown: tuple[int, ...] = ()

  @property
  def doubt(self) -> str:
    """What speaks against the citations of a generated answer; "" if nothing does."""
    if self.unknown:
      numbers = "".join(f"[{number}]" for number in self.unknown[:_DOUBTED])
      numbers += " and others" * (len(self.unknown) > _DOUBTED)
      return f"cites {numbers}, which none of the {len(self.hits)} passages has"
    return "cites none of the passages" if self.text and self.cited == () else ""

  def __repr__(self) -> str:
    return self.shown(lambda words: f"[{words}]")

  def shown(self, mark: Callable[[str], str]) -> str:
    """Returns the answer and its passage as lines of text, with `mark` applied to the answer."""
    if not self.text:
      return "(no answer)"
    if self.cited is not None:
      doubt = [f"  (careful: {self.doubt})"] if self.doubt else []
      cited = [(place + 1, self.hits[place]) for place in self.cited]
      lines = (line(f"  [{number}] {hit.named}") for number, hit in cited)
      return "\n".join([plain(self.text), *doubt, *lines])
    hit, (before, after) = self.hits[self.place], map(plain, self._around())
    answer = plain(self.text)
    passage = textwrap.fill(
      f"{before}{mark(answer)}{after}", _WIDTH, initial_indent="  ", subsequent_indent="  "
    )
    head = line(f"  {hit.named}")
    return f"{answer}  ({self._share()})\n{head}\n{passage}"

  def _share(self) -> str:
    return f"{100 * (self.probability or 0):.0f} % of what could be the answer"

  def _repr_html_(self) -> str:
    if not self.text:
      return "<p>(no answer)</p>" + self.hits._repr_html_()
    text = html.escape(self.text)
    if self.cited is not None:
      return f"<p><b>{text}</b> {html.escape(self.doubt)}</p>{self.hits._repr_html_()}"
    hit = self.hits[self.place]
    before, after = map(html.escape, self._around())
    return (
      f"<p><b>{text}</b> ({self._share()})</p>"
      f"<p>{html.escape(hit.named)}: {before}<mark>{text}</mark>{after}</p>"
      f"{self.hits._repr_html_()}"
    )

  def _around(self) -> tuple[str, str]:
    """Returns what stands before and after the answer in its passage."""
    text = self.hits[self.place].text
    return text[: self.start], text[self.start + len(self.text) :]
