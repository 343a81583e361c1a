"""The kinds of invented entities and what is known of each.

Within a kind every relation has its own type of value, so that a reader can find the value by the
type; no type is small enough to guess from.
"""

from realm_jax.almanac import invented_places, invented_works
from realm_jax.almanac.wording import Relation

KINDS: dict[str, tuple[Relation, ...]] = {
  "kingdom": invented_places.KINGDOM,
  "town": invented_places.TOWN,
  "ship": invented_works.SHIP,
  "river": invented_places.RIVER,
  "guild": invented_works.GUILD,
  "castle": invented_places.CASTLE,
  "comet": invented_places.COMET,
  "star": invented_places.STAR,
  "festival": invented_works.FESTIVAL,
  "novel": invented_works.NOVEL,
}
