"""The real almanac: tables of facts typed in, one row a subject, an empty cell where uncertain."""

import csv
import dataclasses
import functools
from importlib import resources

from realm_jax.almanac import real_relations
from realm_jax.almanac.wording import Relation


@dataclasses.dataclass(frozen=True)
class Table:
  """A file of facts; its first column is the subject, the other columns are named by relations.

  Attributes:
    file: tab-separated, with a header row.
    noun: what sentences call a subject where they need a noun.
    relations: of the columns that hold facts, a column each.
  """

  file: str
  noun: str
  relations: tuple[Relation, ...]

  @functools.cached_property
  def rows(self) -> tuple[dict[str, str], ...]:
    """The rows as `{column: cell}`; cells missing at a line's end are empty."""
    path = resources.files("realm_jax.almanac") / "facts" / self.file
    with path.open(encoding="utf-8", newline="") as lines:
      return tuple(csv.DictReader(lines, delimiter="\t", restval="", quoting=csv.QUOTE_NONE))


TABLES: dict[str, Table] = {
  "country": Table(
    file="countries.tsv",
    noun="country",
    relations=(
      real_relations.CAPITAL,
      real_relations.CURRENCY,
      real_relations.CONTINENT,
      real_relations.LANGUAGE,
    ),
  ),
  "element": Table(
    file="elements.tsv",
    noun="element",
    relations=(
      real_relations.SYMBOL,
      real_relations.NUMBER,
      real_relations.DISCOVERED_YEAR,
      real_relations.DISCOVERER,
    ),
  ),
  "planet": Table(
    file="planets.tsv",
    noun="world",  # some are dwarf planets
    relations=(
      real_relations.POSITION,
      real_relations.TYPE,
      real_relations.ORBIT_DAYS,
      real_relations.DISCOVERED_YEAR,
      real_relations.DISCOVERER,
    ),
  ),
  "moon": Table(
    file="moons.tsv",
    noun="moon",
    relations=(
      real_relations.PLANET,
      real_relations.DISCOVERED_YEAR,
      real_relations.DISCOVERER,
    ),
  ),
  "work": Table(
    file="works.tsv",
    noun="work",
    relations=(real_relations.KIND, real_relations.CREATOR, real_relations.YEAR),
  ),
}


def values(category: str, relation: str) -> list[str]:
  """Returns the distinct values that a relation has in a table, sorted."""
  return sorted({row[relation] for row in TABLES[category].rows if row[relation]})
