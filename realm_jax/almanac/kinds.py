"""The kinds of invented entities and what is known of each.

Within a kind every relation has its own type of value, so that a reader can find the value by the
type. Some kinds are those of real subjects: the few facts that are real are then met in wordings
that the many invented ones make familiar.
"""

from realm_jax.almanac import invented_places, invented_works
from realm_jax.almanac.wording import Relation

KINDS: dict[str, tuple[Relation, ...]] = {
  "country": invented_places.COUNTRY,
  "element": invented_places.ELEMENT,
  "moon": invented_places.MOON,
  "work": invented_works.WORK,
  "town": invented_places.TOWN,
  "ship": invented_works.SHIP,
  "river": invented_places.RIVER,
  "star": invented_places.STAR,
}
