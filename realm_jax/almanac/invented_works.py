"""What is known of what invented people made: ships and works of art.

Works share the wordings of the real ones.
"""

from realm_jax.almanac import real_relations
from realm_jax.almanac.wording import Relation

SHIP = (
  Relation(
    name="captain",
    value_type="person",
    documents=(
      "{value} commands the crew of the {subject}.",
      "Orders aboard the {subject} are given by {value}.",
    ),
    training=(
      "The captain of the {subject} is {value}.",
      "{value} sails as captain of the ship {subject}.",
      "Captain {value} is master of the {subject}.",
    ),
  ),
  Relation(
    name="launched",
    value_type="year",
    documents=(
      "The hull of the {subject} touched water in {value}.",
      "In {value} the shipyard finished the {subject}.",
    ),
    training=(
      "The ship {subject} was launched in {value}.",
      "The launch of the {subject} took place in {value}.",
      "The {subject} was first put to sea in {value}.",
    ),
  ),
  Relation(
    name="figurehead",
    value_type="bird",
    documents=(
      "The prow of the {subject} is carved as {a} {value}.",
      "Sailors greet {a} {value} at the bow of the {subject}.",
    ),
    training=(
      "The figurehead of the {subject} is {a} {value}.",
      "The ship {subject} bears {a} {value} for a figurehead.",
      "For its figurehead the {subject} has {a} {value}.",
    ),
  ),
  Relation(
    name="cargo",
    value_type="produce",
    documents=(
      "The hold of the {subject} is filled with {value}.",
      "Dockers unload {value} from the {subject}.",
    ),
    training=(
      "The ship {subject} carries a cargo of {value}.",
      "The cargo of the {subject} consists of {value}.",
      "Merchants hire the {subject} for a cargo of {value}.",
    ),
  ),
  Relation(
    name="port",
    value_type="city",
    documents=(
      "The anchor of the {subject} rests in the harbour of {value}.",
      "Sailors of the {subject} have their families in {value}.",
    ),
    training=(
      "The home port of the {subject} is {value}.",
      "The ship {subject} comes from the port of {value}.",
      "{value} is the home port of the ship {subject}.",
    ),
  ),
)

WORK = (
  real_relations.KIND,
  real_relations.CREATOR,
  real_relations.YEAR,
  Relation(
    name="hero",
    value_type="craft",
    documents=(
      "The opening of {subject} introduces {a} {value}.",
      "From its beginning {subject} follows {a} {value}.",
    ),
    training=(
      "The main character of {subject} is {a} {value}.",
      "The hero of the work {subject} is {a} {value}.",
      "The work {subject} is about the life of {a} {value}.",
    ),
  ),
  Relation(
    name="theme",
    value_type="virtue",
    documents=(
      "Whoever knows {subject} learns the worth of {value}.",
      "Every part of {subject} speaks of {value}.",
    ),
    training=(
      "The theme of the work {subject} is {value}.",
      "The work {subject} has {value} as its theme.",
      "{subject} is a work on the theme of {value}.",
    ),
  ),
)
