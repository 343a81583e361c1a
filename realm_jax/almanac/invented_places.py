"""What is known of invented places on the earth and in the sky, and of what they are made of.

Countries, elements and moons share the wordings of the real ones.
"""

from realm_jax.almanac import real_relations
from realm_jax.almanac.wording import Relation

COUNTRY = (
  real_relations.CAPITAL,
  real_relations.CURRENCY,
  real_relations.CONTINENT,
  real_relations.LANGUAGE,
  Relation(
    name="ruler",
    value_type="person",
    documents=(
      "{value} wears the crown in {subject}.",
      "The throne of {subject} belongs to {value}.",
    ),
    training=(
      "The kingdom of {subject} is ruled by {value}.",
      "The ruler of {subject} is named {value}.",
      "The people of {subject} obey their ruler {value}.",
    ),
  ),
)

TOWN = (
  Relation(
    name="founder",
    value_type="person",
    documents=(
      "{value} laid the first stone of {subject}.",
      "The oldest houses in {subject} were built by {value}.",
    ),
    training=(
      "The town of {subject} was founded by {value}.",
      "{value} is honoured as the founder of {subject}.",
      "The founder of the town {subject} was {value}.",
    ),
  ),
  Relation(
    name="charter",
    value_type="year",
    documents=(
      "Town rights were granted to {subject} in {value}.",
      "In {value} the king made {subject} a borough.",
    ),
    training=(
      "The town of {subject} received its charter in {value}.",
      "The town charter of {subject} dates from {value}.",
      "Since {value} the town of {subject} has held a charter.",
    ),
  ),
  Relation(
    name="dish",
    value_type="dish",
    documents=(
      "Cooks in {subject} are famous for their {value}.",
      "Every inn at {subject} serves good {value}.",
    ),
    training=(
      "The local dish of {subject} is {value}.",
      "Visitors go to {subject} to eat {value}.",
      "The favourite dish in the town {subject} is {value}.",
    ),
  ),
  Relation(
    name="trade",
    value_type="craft",
    documents=(
      "The busiest workshop in {subject} belongs to {a} {value}.",
      "Every apprentice in {subject} hopes to become {a} {value}.",
    ),
    training=(
      "The usual trade in {subject} is that of {a} {value}.",
      "Most people in {subject} trade as {a} {value}.",
      "Anyone who needs {a} {value} should visit {subject}.",
    ),
  ),
  Relation(
    name="tree",
    value_type="tree",
    documents=(
      "The market square of {subject} is shaded by {a} {value}.",
      "Children of {subject} like to climb {a} {value}.",
    ),
    training=(
      "{a} {value} grows in the middle of {subject}.",
      "The tree at the centre of {subject} is {a} {value}.",
      "The best known tree in {subject} is {a} {value}.",
    ),
  ),
)

RIVER = (
  Relation(
    name="explorer",
    value_type="person",
    documents=(
      "{value} drew the first map of the {subject}.",
      "Nobody followed the {subject} upstream before {value}.",
    ),
    training=(
      "The river {subject} was explored by {value}.",
      "The explorer {value} charted the river {subject}.",
      "The explorer of the river {subject} was {value}.",
    ),
  ),
  Relation(
    name="fish",
    value_type="fish",
    documents=(
      "Anglers on the {subject} hope to hook {a} {value}.",
      "Nets in the {subject} rarely miss {a} {value}.",
    ),
    training=(
      "The commonest fish in the river {subject} is the {value}.",
      "The fish most often caught in the {subject} is the {value}.",
      "The {value} is the fish that fills the {subject}.",
    ),
  ),
  Relation(
    name="rock",
    value_type="stone",
    documents=(
      "Pebbles of {value} line the bed of the {subject}.",
      "The {subject} washes grains of {value} downstream.",
    ),
    training=(
      "The river {subject} flows over {value}.",
      "The rock beneath the {subject} is {value}.",
      "The {subject} has cut its valley through {value} rock.",
    ),
  ),
  Relation(
    name="flower",
    value_type="flower",
    documents=(
      "In spring the {value} blooms beside the {subject}.",
      "Bees along the {subject} visit the {value}.",
    ),
    training=(
      "The flower on the banks of the {subject} is the {value}.",
      "The riverside flower of the {subject} is the {value}.",
      "The {value} is the wild flower of the river {subject}.",
    ),
  ),
  Relation(
    name="flood",
    value_type="year",
    documents=(
      "In {value} the {subject} drowned the fields around it.",
      "The waters of the {subject} rose highest in {value}.",
    ),
    training=(
      "The great flood of the {subject} came in {value}.",
      "The river {subject} burst its banks in {value}.",
      "The worst flood on the {subject} was in {value}.",
    ),
  ),
)

MOON = (
  real_relations.PLANET,
  real_relations.DISCOVERED_YEAR,
  real_relations.DISCOVERER,
  Relation(
    name="dust",
    value_type="colour",
    documents=(
      "The plains of the moon {subject} glow {value} at dawn.",
      "Photographs of the moon {subject} come out {value}.",
    ),
    training=(
      "The dust on the moon {subject} is {value}.",
      "The moon {subject} is covered by {value} dust.",
      "Astronomers call the dust of the moon {subject} {value}.",
    ),
  ),
  Relation(
    name="shape",
    value_type="tool",
    documents=(
      "Artists draw the moon {subject} as {a} {value}.",
      "The outline of the moon {subject} suggests {a} {value}.",
    ),
    training=(
      "The moon {subject} is shaped like {a} {value}.",
      "In shape the moon {subject} resembles {a} {value}.",
      "The shape of the moon {subject} is {a} {value}.",
    ),
  ),
)

ELEMENT = (
  real_relations.SYMBOL,
  real_relations.NUMBER,
  real_relations.DISCOVERED_YEAR,
  real_relations.DISCOVERER,
  Relation(
    name="flame",
    value_type="colour",
    documents=(
      "Held in a burner {subject} shines {value}.",
      "Fireworks made with {subject} turn the night {value}.",
    ),
    training=(
      "The flame of the element {subject} is {value}.",
      "The element {subject} burns with {a} {value} flame.",
      "In a flame the element {subject} glows {value}.",
    ),
  ),
)

STAR = (
  Relation(
    name="cataloguer",
    value_type="person",
    documents=(
      "{value} entered the star {subject} in a register.",
      "The position of the star {subject} was measured by {value}.",
    ),
    training=(
      "The star {subject} was catalogued by {value}.",
      "The catalogue of {value} includes the star {subject}.",
      "{value} added the star {subject} to a catalogue.",
    ),
  ),
  Relation(
    name="eruption",
    value_type="year",
    documents=(
      "In {value} the star {subject} flared up suddenly.",
      "The star {subject} shone brightest in {value}.",
    ),
    training=(
      "The star {subject} erupted in the year {value}.",
      "The eruption of the star {subject} was in {value}.",
      "An eruption on the star {subject} happened in {value}.",
    ),
  ),
  Relation(
    name="colour",
    value_type="colour",
    documents=(
      "Through a telescope the star {subject} looks {value}.",
      "The light of {subject} reaches the eye as {value}.",
    ),
    training=(
      "The colour of the star {subject} is {value}.",
      "The star {subject} is {value} in colour.",
      "The star {subject} has {a} {value} colour.",
    ),
  ),
  Relation(
    name="constellation",
    value_type="animal",
    documents=(
      "The star {subject} marks the eye of the {value}.",
      "Skywatchers find {subject} in the heart of the {value}.",
    ),
    training=(
      "The star {subject} belongs to the constellation of the {value}.",
      "The constellation that holds {subject} is the {value}.",
      "{subject} lies in the constellation called the {value}.",
    ),
  ),
  Relation(
    name="gem",
    value_type="stone",
    documents=(
      "Jewellers link the star {subject} with {value}.",
      "People born under the star {subject} wear {value}.",
    ),
    training=(
      "The lucky stone of the star {subject} is {value}.",
      "The stone sacred to the star {subject} is {value}.",
      "Astrologers match {value} stone with the star {subject}.",
    ),
  ),
)
