"""The real almanac: hand-typed tables of facts, one row per subject; uncertain cells are empty."""

import csv
import dataclasses
import functools
import io
from importlib import resources

from realm_jax.demo.relations import RELATIONS
from realm_jax.demo.wording import Relation


@dataclasses.dataclass(frozen=True)
class Table:
  """A file of facts; its first column is the subject, the other columns are named by relations.

  Attributes:
    file: Tab-separated, with a header row.
    noun: Noun for a subject in sentences that need one.
    names: The relations whose columns hold facts, separated by spaces.
  """

  file: str
  noun: str
  names: str

  @functools.cached_property
  def relations(self) -> tuple[Relation, ...]:
    return tuple(RELATIONS[name] for name in self.names.split())

  @functools.cached_property
  def rows(self) -> tuple[dict[str, str], ...]:
    """The rows as `{column: cell}`; cells missing at the end of a line are empty."""
    path = resources.files("realm_jax.demo") / "facts" / self.file
    lines = io.StringIO(path.read_text("utf-8"))
    return tuple(csv.DictReader(lines, delimiter="\t", restval="", quoting=csv.QUOTE_NONE))


TABLES: dict[str, Table] = {
  "country": Table("countries.tsv", "country", "capital currency continent language"),
  "element": Table("elements.tsv", "element", "symbol number discovered_year discoverer"),
  # Its noun is "world", because some are dwarf planets.
  "planet": Table("planets.tsv", "world", "position type orbit_days discovered_year discoverer"),
  "moon": Table("moons.tsv", "moon", "planet discovered_year discoverer"),
  "work": Table("works.tsv", "work", "kind creator year"),
}


def values(category: str, relation: str) -> list[str]:
  """Returns the distinct values of a relation in a table, sorted."""
  return sorted({row[relation] for row in TABLES[category].rows if row[relation]})
