"""A seeded world of real and invented facts, some held out from training, and its edits."""

import dataclasses
import functools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from realm_jax.demo import names, real_facts, wording
from realm_jax.demo.relations import KINDS, NOUNS
from realm_jax.demo.wording import Relation, Sentence

SEED_FACT_ID = "country/United Kingdom/currency"
HELD_OUT_REAL = 0.5

_NUM_PERSONS = 400
_REAL_PERSONS = (("element", "discoverer"), ("moon", "discoverer"), ("work", "creator"))
_NUM_PLANETS = 20
_YEARS = range(1100, 2025)
_FACTS_PER_ENTITY = 2  # few, so that a name alone nearly finds the passage before any training
_MAX_DRAWS = 16  # attempts to draw a value that is clear in every wording


@dataclasses.dataclass(frozen=True)
class Fact:
  """One fact: `subject` and `relation` determine `value` within a world.

  Attributes:
    fact_id: `category/subject/relation`.
    category: What the subject is: "country", "moon", "town" and so on.
    article: "the" if the subject's name takes one, else empty.
    held_out: Whether no training sentence mentions the fact.
    document_variant: The wording of the relation that its document uses.
    training_variant: The wording that its training sentence or question uses.
  """

  fact_id: str
  subject: str
  relation: str
  value: str
  kind: Literal["real", "invented"]
  held_out: bool
  category: str
  article: str
  document_variant: int
  training_variant: int


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


@dataclasses.dataclass(frozen=True)
class Edit:
  """A fact with its new value, and the value it had."""

  fact: Fact
  old_value: str


@dataclasses.dataclass(frozen=True)
class EditedWorld:
  """A world in which some values changed; nothing else differs from the original."""

  world: World
  edits: tuple[Edit, ...]


def make_world(
  *, seed: int, num_invented_entities: int = 6_500, held_out_fraction: float = 0.1
) -> World:
  """Makes the world of a seed; the default size has 17,900 invented facts.

  Holds out half of the real facts, always including the currency of the United Kingdom, and
  `held_out_fraction` of the invented ones. Real facts that the subject's name gives away (Tunis of
  Tunisia) are left out.

  Raises:
    ValueError: If the number of entities is negative or exceeds the number of names, or the
      fraction lies outside [0, 1].
  """
  if num_invented_entities < 0:
    raise ValueError(f"num_invented_entities is {num_invented_entities}; give 0 or more")
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
    dataclasses.replace(fact, held_out=True) if fact.fact_id in held_out else fact
    for fact in real + invented
  )
  return World(seed, num_invented_entities, held_out_fraction, facts)


def edit(world: World, *, seed: int, num_edits: int) -> EditedWorld:
  """Gives `num_edits` facts another value, which their relation has elsewhere in the world.

  Half of the edited facts are real, half are invented. Half of each were held out from training,
  and the others were trained on with the old value.

  Raises:
    ValueError: If `num_edits` is negative, or there are too few facts in one of the four groups.
  """
  if num_edits < 0:
    raise ValueError(f"num_edits is {num_edits}; give 0 or more")
  values: dict[tuple[str, str], set[str]] = {}
  for fact in world.facts:
    values.setdefault((fact.category, fact.relation), set()).add(fact.value)
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
  edits = tuple(
    Edit(new_facts[fact.fact_id], fact.value) for fact in world.facts if fact.fact_id in new_facts
  )
  facts = tuple(new_facts.get(fact.fact_id, fact) for fact in world.facts)
  return EditedWorld(dataclasses.replace(world, facts=facts), edits)


def document_sentence(fact: Fact) -> Sentence:
  """Returns the sentence that states the fact in the knowledge corpus."""
  relation, noun = _wordings()[fact.category, fact.relation]
  return _fill(relation.documents[fact.document_variant], noun, fact)


def training_sentence(fact: Fact) -> Sentence:
  """Returns the sentence that states the fact in other words, in the training corpus."""
  relation, noun = _wordings()[fact.category, fact.relation]
  return _fill(relation.training[fact.training_variant], noun, fact)


def question(fact: Fact) -> str:
  """Returns the question for the fact's value."""
  relation, _ = _wordings()[fact.category, fact.relation]
  return wording.ask(relation, article=fact.article, subject=fact.subject)


@functools.cache
def _wordings() -> Mapping[tuple[str, str], tuple[Relation, str]]:
  """Returns the relation and the noun of each `(category, relation name)`."""
  wordings = {(kind, r.name): (r, kind) for kind, relations in KINDS.items() for r in relations}
  for category, table in real_facts.TABLES.items():
    wordings.update({(category, r.name): (r, table.noun) for r in table.relations})
  return wordings


def _fill(template: str, noun: str, fact: Fact) -> Sentence:
  return wording.fill(
    template, noun=noun, article=fact.article, subject=fact.subject, value=fact.value
  )


def _is_clear(fact: Fact) -> bool:
  relation, noun = _wordings()[fact.category, fact.relation]
  return wording.is_clear(
    relation, noun=noun, article=fact.article, subject=fact.subject, value=fact.value
  )


def _stream(seed: int, purpose: str) -> random.Random:
  """Returns a random stream per purpose, so that more of one thing does not change the others."""
  return random.Random(f"{purpose}/{seed}")


def _sample_ids(rng: random.Random, facts: Sequence[Fact], fraction: float) -> list[str]:
  return rng.sample([fact.fact_id for fact in facts], round(len(facts) * fraction))


def _new_fact(
  rng: random.Random,
  *,
  category: str,
  subject: str,
  article: str,
  relation: Relation,
  value: str,
  kind: Literal["real", "invented"],
) -> Fact:
  """Makes a fact that is not held out, with wordings drawn at random."""
  fact_id = f"{category}/{subject}/{relation.name}"
  training_variant = rng.randrange(len(relation.training))
  return Fact(
    fact_id=fact_id,
    subject=subject,
    relation=relation.name,
    value=value,
    kind=kind,
    held_out=False,
    category=category,
    article=article,
    document_variant=rng.randrange(len(relation.documents)),
    # "The pound is the currency of the United Kingdom.", as in the paper.
    training_variant=0 if fact_id == SEED_FACT_ID else training_variant,
  )


def _real_facts(rng: random.Random) -> Iterator[Fact]:
  for category, table in real_facts.TABLES.items():
    for row in table.rows:
      subject = next(iter(row.values()))
      for relation in table.relations:
        if not row[relation.name]:
          continue
        fact = _new_fact(
          rng,
          category=category,
          subject=subject,
          article=row.get("article", ""),
          relation=relation,
          value=row[relation.name],
          kind="real",
        )
        if _is_clear(fact):
          yield fact


def _invented_facts(seed: int, num_entities: int) -> Iterator[Fact]:
  taken = _real_words()
  value_sets: dict[str, Sequence[str]] = {
    "person": names.draw_person_names(_stream(seed, "persons"), _NUM_PERSONS, taken=taken)
    + sorted(
      {person for table, relation in _REAL_PERSONS for person in real_facts.values(table, relation)}
    ),
    "city": real_facts.values("country", "capital"),
    "planet": names.draw_place_names(_stream(seed, "planets"), _NUM_PLANETS, taken=taken)
    + real_facts.values("moon", "planet"),
    "year": [str(year) for year in _YEARS],
    "currency": real_facts.values("country", "currency"),
    "continent": real_facts.values("country", "continent"),
    "language": real_facts.values("country", "language"),
    "symbol": real_facts.values("element", "symbol"),
    "number": real_facts.values("element", "number"),
    "kind of work": real_facts.values("work", "kind"),
    **NOUNS,
  }
  subjects = names.draw_place_names(_stream(seed, "entities"), num_entities, taken=taken)
  rng = _stream(seed, "invented")
  kinds = list(KINDS.items())
  for index, subject in enumerate(subjects):
    category, relations = kinds[index % len(kinds)]
    table = real_facts.TABLES.get(category)
    # As many as real subjects have, so that a question has as many wrong answers.
    num_facts = len(table.relations) if table else _FACTS_PER_ENTITY
    for relation in rng.sample(relations, num_facts):
      fact = _new_fact(
        rng,
        category=category,
        subject=subject,
        article="",
        relation=relation,
        value="",
        kind="invented",
      )
      values = rng.choices(value_sets[relation.value_type], k=_MAX_DRAWS)
      candidates = (dataclasses.replace(fact, value=value) for value in values)
      clear = next(filter(_is_clear, candidates), None)
      if clear is None:
        raise ValueError(
          f"no {relation.value_type} such as {values[0]!r} fits {fact.fact_id}: a wording contains "
          "the value, or not exactly one subject; reword the relation"
        )
      yield clear


def _real_words() -> set[str]:
  """Returns the words of the tables and the nouns in lower case; no invented name may be one."""
  cells = {
    cell for table in real_facts.TABLES.values() for row in table.rows for cell in row.values()
  }
  return set(re.findall(r"\w+", " ".join(cells).casefold())).union(*NOUNS.values())


def _changed(
  rng: random.Random, facts: Sequence[Fact], count: int, values: Mapping[tuple[str, str], set[str]]
) -> list[Fact]:
  """Returns up to `count` of the facts, each with another of the `values` of its relation."""
  found: list[Fact] = []
  for fact in rng.sample(facts, len(facts)):
    if len(found) == count:
      break
    others = sorted(values[fact.category, fact.relation] - {fact.value})
    for value in rng.sample(others, len(others)):
      candidate = dataclasses.replace(fact, value=value)
      if _is_clear(candidate):
        found.append(candidate)
        break
  return found
