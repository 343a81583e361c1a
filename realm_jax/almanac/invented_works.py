"""What is known of what invented people made: ships, guilds, festivals and novels.

Novels share wordings with real works.
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
    name="timber",
    value_type="tree",
    documents=(
      "The planks of the {subject} are sawn from {value}.",
      "Carpenters cut {value} for the ribs of the {subject}.",
    ),
    training=(
      "The {subject} is built of {value} wood.",
      "The wood used for the ship {subject} is {value}.",
      "Shipwrights made the {subject} out of {value}.",
    ),
  ),
)

GUILD = (
  Relation(
    name="master",
    value_type="person",
    documents=(
      "{value} presides over meetings of the {subject} guild.",
      "Members of the {subject} guild answer to {value}.",
    ),
    training=(
      "The master of the {subject} guild is {value}.",
      "{value} was elected master of the guild {subject}.",
      "The guild called {subject} is led by {value}.",
    ),
  ),
  Relation(
    name="formed",
    value_type="year",
    documents=(
      "The {subject} guild enrolled its first members in {value}.",
      "The rolls of the {subject} guild begin in {value}.",
    ),
    training=(
      "The guild {subject} was formed in {value}.",
      "The {subject} guild has existed since {value}.",
      "Craftsmen formed the {subject} guild in {value}.",
    ),
  ),
  Relation(
    name="seal",
    value_type="tool",
    documents=(
      "The hall of the {subject} guild displays {a} {value}.",
      "The door of the {subject} guild bears {a} {value}.",
    ),
    training=(
      "The seal of the {subject} guild shows {a} {value}.",
      "The {subject} guild uses {a} {value} as its seal.",
      "The sign of the guild {subject} is {a} {value}.",
    ),
  ),
  Relation(
    name="motto",
    value_type="virtue",
    documents=(
      "Above all the {subject} guild prizes {value}.",
      "Songs of the {subject} guild praise {value}.",
    ),
    training=(
      "The motto of the {subject} guild is {value}.",
      "The guild {subject} has {value} for its motto.",
      "The word {value} is the motto of the {subject} guild.",
    ),
  ),
  Relation(
    name="colour",
    value_type="colour",
    documents=(
      "Robes in the {subject} guild are dyed {value}.",
      "Members of the {subject} guild dress in {value}.",
    ),
    training=(
      "The colour of the {subject} guild is {value}.",
      "The guild {subject} chose {value} as its colour.",
      "The banner colour of the {subject} guild is {value}.",
    ),
  ),
  Relation(
    name="feast",
    value_type="dish",
    documents=(
      "The {subject} guild cooks {value} for its yearly banquet.",
      "Banquets of the {subject} guild end with {value}.",
    ),
    training=(
      "The feast of the {subject} guild begins with {value}.",
      "At its feast the {subject} guild eats {value}.",
      "The guild {subject} is served {value} at every feast.",
    ),
  ),
)

FESTIVAL = (
  Relation(
    name="hero",
    value_type="person",
    documents=(
      "Songs at the {subject} festival remember {value}.",
      "A mask of {value} opens the {subject} festival.",
    ),
    training=(
      "The {subject} festival is held in honour of {value}.",
      "The hero honoured by the {subject} festival is {value}.",
      "People honour {value} at the festival of {subject}.",
    ),
  ),
  Relation(
    name="begun",
    value_type="year",
    documents=(
      "The {subject} festival drew its first crowd in {value}.",
      "Nobody danced at the {subject} festival before {value}.",
    ),
    training=(
      "The {subject} festival began in the year {value}.",
      "The festival of {subject} was begun in {value}.",
      "The beginning of the {subject} festival was in {value}.",
    ),
  ),
  Relation(
    name="food",
    value_type="dish",
    documents=(
      "Stalls at the {subject} festival sell bowls of {value}.",
      "Guests at the {subject} festival are handed {value}.",
    ),
    training=(
      "The traditional food of the {subject} festival is {value}.",
      "At the festival of {subject} people eat {value}.",
      "The food eaten during the {subject} festival is {value}.",
    ),
  ),
  Relation(
    name="instrument",
    value_type="instrument",
    documents=(
      "Dancers at the {subject} festival follow the {value}.",
      "The sound of the {value} fills the {subject} festival.",
    ),
    training=(
      "The instrument of the {subject} festival is the {value}.",
      "Musicians at the {subject} festival play the {value}.",
      "Music for the {value} is played at {subject} festival.",
    ),
  ),
  Relation(
    name="flower",
    value_type="flower",
    documents=(
      "Crowns woven for the {subject} festival contain the {value}.",
      "Streets smell of the {value} at the {subject} festival.",
    ),
    training=(
      "The flower of the {subject} festival is the {value}.",
      "The {value} is the festival flower of {subject}.",
      "The flower chosen for the {subject} festival is the {value}.",
    ),
  ),
)

NOVEL = (
  real_relations.CREATOR,
  real_relations.YEAR,
  Relation(
    name="hero",
    value_type="craft",
    documents=(
      "Chapter one of {subject} introduces {a} {value}.",
      "In the story {subject} we follow {a} {value}.",
    ),
    training=(
      "The main character of {subject} is {a} {value}.",
      "The hero of the novel {subject} is {a} {value}.",
      "The novel {subject} tells the life of {a} {value}.",
    ),
  ),
  Relation(
    name="bird",
    value_type="bird",
    documents=(
      "The cover of the book {subject} shows {a} {value}.",
      "The story {subject} closes with the song of {a} {value}.",
    ),
    training=(
      "The bird in the novel {subject} is {a} {value}.",
      "The bird described in {subject} is {a} {value}.",
      "The novel {subject} gives a part to {a} {value}.",
    ),
  ),
  Relation(
    name="theme",
    value_type="virtue",
    documents=(
      "Readers of {subject} learn the worth of {value}.",
      "Every page of {subject} speaks of {value}.",
    ),
    training=(
      "The theme of the novel {subject} is {value}.",
      "The novel {subject} has {value} as its theme.",
      "{subject} is a novel on the theme of {value}.",
    ),
  ),
)
