"""The almanac's relations, its tables of real facts, and the kinds of invented entities."""

import csv
import dataclasses
import io
import tomllib
from collections.abc import Sequence
from importlib import resources

_FILES = resources.files("realm_jax.demo")


@dataclasses.dataclass(frozen=True)
class Relation:
  """A property of subjects, with templates for stating it and asking for it.

  Templates contain `{subject}` and `{value}`. They may contain `{noun}` (what the subject is) and,
  directly before the value, `{a}` (its indefinite article).

  Attributes:
    name: Unique; the column name of real facts.
    value_type: Names the set that invented values are drawn from.
    documents: Templates for the knowledge corpus.
    training: Templates for the training corpus, worded differently.
    question: Template of the question for the value.
  """

  name: str
  value_type: str
  documents: Sequence[str]
  training: Sequence[str]
  question: str


@dataclasses.dataclass(frozen=True)
class Table:
  """Real facts, typed by hand.

  Attributes:
    relations: The relations whose columns hold facts.
    rows: `{column: cell}` of each subject, which is the first cell; uncertain cells are empty.
  """

  relations: tuple[Relation, ...]
  rows: tuple[dict[str, str], ...]

  def values(self, relation: str) -> list[str]:
    """Returns the distinct values of a relation, sorted."""
    return sorted({row[relation] for row in self.rows if row[relation]})


def _relations(names: str) -> tuple[Relation, ...]:
  return tuple(RELATIONS[name] for name in names.split())


def _table(file: str, relations: str) -> Table:
  lines = io.StringIO((_FILES / "facts" / file).read_text("utf-8"))
  # Cells that are missing at the end of a line are empty.
  rows = csv.DictReader(lines, delimiter="\t", restval="", quoting=csv.QUOTE_NONE)
  return Table(_relations(relations), tuple(rows))


RELATIONS: dict[str, Relation] = {
  name: Relation(name=name, **fields)
  for name, fields in tomllib.loads((_FILES / "relations.toml").read_text("utf-8")).items()
}
# By type of value.
NOUNS: dict[str, list[str]] = {
  value_type: words.split()
  for value_type, words in tomllib.loads((_FILES / "nouns.toml").read_text("utf-8")).items()
}
# By category of the subjects.
TABLES: dict[str, Table] = {
  "country": _table("countries.tsv", "capital currency continent language"),
  "element": _table("elements.tsv", "symbol number discovered_year discoverer"),
  "planet": _table("planets.tsv", "position type orbit_days discovered_year discoverer"),
  "moon": _table("moons.tsv", "planet discovered_year discoverer"),
  "work": _table("works.tsv", "kind creator year"),
}
# Within a kind every relation has its own type of value, so that a reader can find the value by its
# type. Some kinds are those of real subjects, so that the many invented facts make the wordings of
# the few real ones familiar.
KINDS: dict[str, tuple[Relation, ...]] = {
  "country": _relations("capital currency continent language ruler"),
  "element": _relations("symbol number discovered_year discoverer flame"),
  "moon": _relations("planet discovered_year discoverer dust shape"),
  "work": _relations("kind creator year hero theme"),
  "town": _relations("founder charter dish trade tree"),
  "ship": _relations("captain launched figurehead cargo port"),
  "river": _relations("explorer fish rock flower flood"),
  "star": _relations("cataloguer eruption colour constellation gem"),
}
