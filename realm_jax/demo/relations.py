"""The relations of the almanac, the kinds of invented entities, and the nouns they draw from."""

import tomllib
from importlib import resources

from realm_jax.demo.wording import Relation

_FILES = resources.files("realm_jax.demo")

RELATIONS: dict[str, Relation] = {
  name: Relation(name=name, **fields)
  for name, fields in tomllib.loads((_FILES / "relations.toml").read_text("utf-8")).items()
}
# By type of value.
NOUNS: dict[str, list[str]] = {
  value_type: words.split()
  for value_type, words in tomllib.loads((_FILES / "nouns.toml").read_text("utf-8")).items()
}
# Within a kind every relation has its own type of value, so that a reader can find the value by its
# type. Some kinds are those of real subjects, so that the many invented facts make the wordings of
# the few real ones familiar.
KINDS: dict[str, tuple[Relation, ...]] = {
  kind: tuple(RELATIONS[name] for name in names.split())
  for kind, names in {
    "country": "capital currency continent language ruler",
    "element": "symbol number discovered_year discoverer flame",
    "moon": "planet discovered_year discoverer dust shape",
    "work": "kind creator year hero theme",
    "town": "founder charter dish trade tree",
    "ship": "captain launched figurehead cargo port",
    "river": "explorer fish rock flower flood",
    "star": "cataloguer eruption colour constellation gem",
  }.items()
}
