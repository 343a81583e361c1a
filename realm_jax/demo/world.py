"""A seeded world of real and invented facts, some held out from training, and its edits."""

import dataclasses
import functools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from realm_jax.demo.tables import KINDS, NOUNS, TABLES, Relation

SEED_FACT_ID = "country/United Kingdom/currency"
HELD_OUT_REAL = 0.5

_NUM_PERSONS = 400
_REAL_PERSONS = (("element", "discoverer"), ("moon", "discoverer"), ("work", "creator"))
_NUM_PLANETS = 20
_YEARS = range(1100, 2025)
_FACTS_PER_ENTITY = 2  # few, so that a name alone nearly finds the passage before any training
_MAX_DRAWS = 16  # attempts to draw a value that is clear in every wording

# Invented proper names have two or three syllables.
_ONSETS = """
  bal bel bor bru cal cor dar del dor dra dul fal fen gal gar gor gri hal hel hor jar jor kal kel
  kor kru lan lor lum mal mor mul nal nor nul pal pel por pru rel ril ror sal sel sul tal tel tor
  tru val vel vor wal wel wor yal yel yor zan zel zor thra shel skar
""".split()
_MIDDLES = """
  a e i o u an ar en er il im in ol on or ur al el is us ba da ka la ma na ra sa ta va bi di ki li
  mi ni ri si ti vi
""".split()
_PLACE_ENDINGS = """
  vash zeth quor drix moth vund garn thul bex dorn fesk glin jask kesh mire nox pell rusk spar
  tirn vek wick xan yrn crun fyrd gosk hask jund kvar lisk marn nesk plorn quen rask skel trov
  vosk werf zund bram clov dusk frel gwyn holt
""".split()
_PERSON_ENDINGS = """
  zik vey luth drey quin fyn rell thas gwen jov kett lann meth nash ophe pryn sarn tove ubek wyth
  yash zeph brin dask
""".split()
# One name in five has two syllables.
_SOME_MIDDLES = ("",) * 10 + tuple(_MIDDLES)


class Sentence(NamedTuple):
  """A sentence that states one fact; its value is the UTF-8 bytes `[start, limit)` of `text`."""

  text: str
  start: int
  limit: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fact:
  """One fact: `subject` and `relation` determine `value` within a world.

  Attributes:
    category: What the subject is: "country", "moon", "town" and so on.
    article: "the" if the subject's name takes one, else empty.
    document_variant: The wording of the relation that its document uses.
    training_variant: The wording that its training sentence uses.
    held_out: Whether no training sentence mentions the fact.
  """

  category: str
  subject: str
  article: str
  relation: Relation
  value: str
  kind: Literal["real", "invented"]
  document_variant: int
  training_variant: int
  held_out: bool = False

  @functools.cached_property
  def fact_id(self) -> str:
    return f"{self.category}/{self.subject}/{self.relation.name}"

  @property
  def document_sentence(self) -> Sentence:
    """The sentence that states the fact in the knowledge corpus."""
    return self.stated(self.relation.documents[self.document_variant])

  @property
  def training_sentence(self) -> Sentence:
    """The sentence that states the fact in other words, in the training corpus."""
    return self.stated(self.relation.training[self.training_variant])

  @property
  def question(self) -> str:
    """The question for the fact's value."""
    return self.relation.question.replace("{subject}", self._named_subject)

  def stated(self, template: str) -> Sentence:
    """Returns a template filled with the fact."""
    before, after = self._around_value(template)
    start = len(before.encode())
    return Sentence(before + self.value + after, start, start + len(self.value.encode()))

  @property
  def is_clear(self) -> bool:
    """Whether every wording has the subject once and the value only in its place.

    Tunisia with Tunis fails, as does Mexico with Mexico City. Case is ignored: Sierra Leone fails
    with leone.
    """
    value = _words(self.value)
    if _words(self.subject) in value:
      return False
    for template in (*self.relation.documents, *self.relation.training):
      rest = " ".join(self._around_value(template))
      if self.value in rest or rest.count(self.subject) != 1 or value in _words(rest):
        return False
    return True

  @property
  def _named_subject(self) -> str:
    return f"{self.article} {self.subject}".strip()

  def _around_value(self, template: str) -> list[str]:
    """Returns the text before and after the value; capitalises the sentence."""
    noun = "world" if self.category == "planet" else self.category  # some are dwarf planets
    text = template.replace("{noun}", noun).replace(
      "{a}", "an" if self.value[0] in "aeiou" else "a"
    )
    before, after = text.replace("{subject}", self._named_subject).split("{value}")
    return [before[:1].upper() + before[1:], after]


def _words(text: str) -> str:
  """Returns the words in lower case, each between two spaces."""
  words = re.findall(r"[^\W_]+", text.casefold())
  return f" {' '.join(words)} "


@dataclasses.dataclass(frozen=True)
class World:
  """Facts ordered by subject, and the settings that they were made with."""

  seed: int
  num_invented_entities: int
  held_out_fraction: float
  facts: tuple[Fact, ...]

  @functools.cached_property
  def by_subject(self) -> Mapping[str, Sequence[Fact]]:
    """The facts about each subject."""
    groups: dict[str, list[Fact]] = {}
    for fact in self.facts:
      groups.setdefault(fact.subject, []).append(fact)
    return groups


def make_world(
  *, seed: int, num_invented_entities: int = 6_500, held_out_fraction: float = 0.1
) -> World:
  """Makes the world of a seed; the default size has 17,900 invented facts.

  Holds out half of the real facts, always including the currency of the United Kingdom, and
  `held_out_fraction` of the invented ones. Real facts that the subject's name gives away (Tunis of
  Tunisia) are left out.

  Raises:
    ValueError: If the number of entities exceeds the number of names, or the fraction lies outside
      [0, 1].
  """
  if not 0 <= held_out_fraction <= 1:
    raise ValueError(f"held_out_fraction is {held_out_fraction}; give a number from 0 to 1")
  real = list(_real_facts(_stream(seed, "real")))
  invented = list(_invented_facts(seed, num_invented_entities))
  real_held_out = _sample_ids(_stream(seed, "real held out"), real, HELD_OUT_REAL)
  if SEED_FACT_ID not in real_held_out:
    real_held_out.pop()
    real_held_out.append(SEED_FACT_ID)
  held_out = set(real_held_out)
  held_out.update(_sample_ids(_stream(seed, "invented held out"), invented, held_out_fraction))
  facts = tuple(
    dataclasses.replace(fact, held_out=fact.fact_id in held_out) for fact in real + invented
  )
  return World(seed, num_invented_entities, held_out_fraction, facts)


def edit(world: World, *, seed: int, num_edits: int) -> World:
  """Gives `num_edits` facts another value, which their relation has elsewhere in the world.

  Half of the edited facts are real, half are invented. Half of each were held out from training,
  and the others were trained on with the old value.

  Raises:
    ValueError: If there are too few facts in one of the four groups.
  """
  values: dict[tuple[str, str], set[str]] = {}
  for fact in world.facts:
    values.setdefault((fact.category, fact.relation.name), set()).add(fact.value)
  rng = _stream(seed, "edits")
  num_real = (num_edits + 1) // 2
  new_facts: dict[str, Fact] = {}
  for kind, num_kind in (("real", num_real), ("invented", num_edits - num_real)):
    num_held_out = (num_kind + 1) // 2
    for held_out, num_wanted in ((True, num_held_out), (False, num_kind - num_held_out)):
      group = [fact for fact in world.facts if (fact.kind, fact.held_out) == (kind, held_out)]
      found = _changed(rng, group, num_wanted, values)
      if len(found) < num_wanted:
        sort = f"{kind}, {'held out' if held_out else 'trained'}"
        raise ValueError(
          f"num_edits={num_edits} needs {num_wanted} facts that are {sort}; "
          f"the world can change {len(found)}; ask for fewer edits"
        )
      new_facts.update((fact.fact_id, fact) for fact in found)
  facts = tuple(new_facts.get(fact.fact_id, fact) for fact in world.facts)
  return dataclasses.replace(world, facts=facts)


def _stream(seed: int, purpose: str) -> random.Random:
  """Returns a random stream per purpose, so that more of one thing does not change the others."""
  return random.Random(f"{purpose}/{seed}")


def _sample_ids(rng: random.Random, facts: Sequence[Fact], fraction: float) -> list[str]:
  return rng.sample([fact.fact_id for fact in facts], round(len(facts) * fraction))


def _new_fact(rng: random.Random, category: str, relation: Relation, **fields) -> Fact:
  """Makes a fact that is not held out, with wordings drawn at random."""
  training_variant = rng.randrange(len(relation.training))
  document_variant = rng.randrange(len(relation.documents))
  fact = Fact(
    category=category,
    relation=relation,
    training_variant=training_variant,
    document_variant=document_variant,
    **fields,
  )
  # "The pound is the currency of the United Kingdom.", as in the paper.
  return dataclasses.replace(fact, training_variant=0) if fact.fact_id == SEED_FACT_ID else fact


def _real_facts(rng: random.Random) -> Iterator[Fact]:
  for category, table in TABLES.items():
    for row in table.rows:
      fields = {"subject": next(iter(row.values())), "article": row.get("article", "")}
      for relation in table.relations:
        value = row[relation.name]
        if value:
          fact = _new_fact(rng, category, relation, value=value, kind="real", **fields)
          if fact.is_clear:
            yield fact


def _invented_facts(seed: int, num_entities: int) -> Iterator[Fact]:
  draw = functools.partial(_draw_names, taken=_real_words())
  value_sets: dict[str, Sequence[str]] = {
    "person": draw(_stream(seed, "persons"), _NUM_PERSONS, endings=_PERSON_ENDINGS)
    + sorted({person for table, r in _REAL_PERSONS for person in TABLES[table].values(r)}),
    "city": TABLES["country"].values("capital"),
    "planet": draw(_stream(seed, "planets"), _NUM_PLANETS, endings=_PLACE_ENDINGS)
    + TABLES["moon"].values("planet"),
    "year": [str(year) for year in _YEARS],
    "currency": TABLES["country"].values("currency"),
    "continent": TABLES["country"].values("continent"),
    "language": TABLES["country"].values("language"),
    "symbol": TABLES["element"].values("symbol"),
    "number": TABLES["element"].values("number"),
    "kind of work": TABLES["work"].values("kind"),
    **NOUNS,
  }
  subjects = draw(_stream(seed, "entities"), num_entities, endings=_PLACE_ENDINGS)
  rng = _stream(seed, "invented")
  kinds = list(KINDS.items())
  for index, subject in enumerate(subjects):
    category, relations = kinds[index % len(kinds)]
    table = TABLES.get(category)
    # As many as real subjects have, so that a question has as many wrong answers.
    num_facts = len(table.relations) if table else _FACTS_PER_ENTITY
    for relation in rng.sample(relations, num_facts):
      fields = {"subject": subject, "article": "", "kind": "invented"}
      fact = _new_fact(rng, category, relation, value="", **fields)
      values = rng.choices(value_sets[relation.value_type], k=_MAX_DRAWS)
      candidates = (dataclasses.replace(fact, value=value) for value in values)
      clear = next((fact for fact in candidates if fact.is_clear), None)
      if clear is None:
        raise ValueError(
          f"no {relation.value_type} such as {values[0]!r} fits {fact.fact_id}: a wording contains "
          "the value, or not exactly one subject; reword the relation"
        )
      yield clear


def _draw_names(
  rng: random.Random, count: int, *, endings: Sequence[str], taken: set[str]
) -> list[str]:
  """Draws distinct names that are not in `taken` (lower case), and adds them to it."""
  # At most half of the inventory, so that most draws give a new name.
  limit = len(_ONSETS) * len(set(_SOME_MIDDLES)) * len(endings) // 2
  if count > limit:
    raise ValueError(f"{count} invented names exceed {limit}; lower num_invented_entities")
  names = []
  while len(names) < count:
    name = rng.choice(_ONSETS) + rng.choice(_SOME_MIDDLES) + rng.choice(endings)
    if name not in taken:
      taken.add(name)
      names.append(name.capitalize())
  return names


def _real_words() -> set[str]:
  """Returns the words of the tables and the nouns in lower case; no invented name may be one."""
  cells = {cell for table in TABLES.values() for row in table.rows for cell in row.values()}
  return set(re.findall(r"\w+", " ".join(cells).casefold())).union(*NOUNS.values())


def _changed(
  rng: random.Random, facts: Sequence[Fact], count: int, values: Mapping[tuple[str, str], set[str]]
) -> list[Fact]:
  """Returns up to `count` of the facts, each with another of the `values` of its relation."""
  found: list[Fact] = []
  for fact in rng.sample(facts, len(facts)):
    if len(found) == count:
      break
    others = sorted(values[fact.category, fact.relation.name] - {fact.value})
    for value in rng.sample(others, len(others)):
      candidate = dataclasses.replace(fact, value=value)
      if candidate.is_clear:
        found.append(candidate)
        break
  return found
