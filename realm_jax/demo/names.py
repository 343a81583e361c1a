"""Invented proper names of two or three syllables from a fixed inventory."""

import random
from collections.abc import Sequence

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


def draw_place_names(rng: random.Random, count: int, *, taken: set[str]) -> list[str]:
  """Draws `count` distinct names for towns, ships, stars and the like.

  No name is in `taken` (lower case); the new names are added to it.

  Raises:
    ValueError: If there are fewer names than `count`.
  """
  return _draw(rng, count, endings=_PLACE_ENDINGS, taken=taken)


def draw_person_names(rng: random.Random, count: int, *, taken: set[str]) -> list[str]:
  """Draws `count` distinct names of people, like `draw_place_names` but with other endings."""
  return _draw(rng, count, endings=_PERSON_ENDINGS, taken=taken)


def _draw(rng: random.Random, count: int, *, endings: Sequence[str], taken: set[str]) -> list[str]:
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
