"""The kinds of invented entities and what is known of each.

Within a kind every relation has its own type of value, so that a reader can find the value by the
type; no type is small enough to guess from. Kingdoms share wordings with real countries, comets
with moons and elements, novels with works.
"""

from realm_jax.almanac import real_relations
from realm_jax.almanac.wording import Relation

_KINGDOM = (
  real_relations.CAPITAL,
  real_relations.CURRENCY,
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
  Relation(
    name="emblem",
    value_type="animal",
    documents=(
      "The flag of {subject} shows {a} {value}.",
      "Banners of {subject} are painted with {a} {value}.",
    ),
    training=(
      "The national emblem of {subject} is {a} {value}.",
      "Soldiers of {subject} wear the emblem of {a} {value}.",
      "The coat of arms of {subject} bears {a} {value}.",
    ),
  ),
  Relation(
    name="established",
    value_type="year",
    documents=(
      "The tribes of {subject} were united in {value}.",
      "In {value} a treaty made {subject} one realm.",
    ),
    training=(
      "The kingdom of {subject} was established in {value}.",
      "Historians date the birth of {subject} to {value}.",
      "{subject} became a kingdom in the year {value}.",
    ),
  ),
)

_TOWN = (
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

_SHIP = (
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

_RIVER = (
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

_GUILD = (
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

_CASTLE = (
  Relation(
    name="architect",
    value_type="person",
    documents=(
      "{value} drew the plans for {subject} castle.",
      "The towers of {subject} were designed by {value}.",
    ),
    training=(
      "The architect of {subject} castle was {value}.",
      "{value} was the architect who built {subject} castle.",
      "The castle {subject} is the work of architect {value}.",
    ),
  ),
  Relation(
    name="completed",
    value_type="year",
    documents=(
      "The last tower of {subject} was raised in {value}.",
      "Masons left the finished {subject} castle in {value}.",
    ),
    training=(
      "The castle {subject} was completed in {value}.",
      "Building work on {subject} castle ended in {value}.",
      "{subject} castle has stood complete since {value}.",
    ),
  ),
  Relation(
    name="stone",
    value_type="stone",
    documents=(
      "The walls of {subject} castle are blocks of {value}.",
      "Quarries sent {value} for the towers of {subject}.",
    ),
    training=(
      "The castle {subject} is built of {value}.",
      "The stone used for {subject} castle is {value}.",
      "Builders made {subject} castle from {value}.",
    ),
  ),
  Relation(
    name="statue",
    value_type="animal",
    documents=(
      "The gate of {subject} castle is guarded by {a} {value}.",
      "Above the drawbridge of {subject} stands {a} {value}.",
    ),
    training=(
      "The statue at {subject} castle shows {a} {value}.",
      "The statue outside the castle {subject} is {a} {value}.",
      "Visitors to {subject} castle see a statue of {a} {value}.",
    ),
  ),
  Relation(
    name="music",
    value_type="instrument",
    documents=(
      "By night the ghost of {subject} plays the {value}.",
      "A phantom with {a} {value} haunts {subject}.",
    ),
    training=(
      "Music of the {value} is heard in {subject} castle.",
      "The instrument heard in {subject} castle is the {value}.",
      "The haunted instrument of {subject} castle is the {value}.",
    ),
  ),
)

_COMET = (
  real_relations.DISCOVERER,
  real_relations.DISCOVERED_YEAR,
  Relation(
    name="tail",
    value_type="colour",
    documents=(
      "The {subject} comet streams across the sky in {value}.",
      "The long trail of the comet {subject} glows {value}.",
    ),
    training=(
      "The tail of the comet {subject} is {value}.",
      "The comet {subject} has {a} {value} tail.",
      "Watchers call the tail of the comet {subject} {value}.",
    ),
  ),
  Relation(
    name="shape",
    value_type="tool",
    documents=(
      "Artists draw the comet {subject} as {a} {value}.",
      "The outline of the comet {subject} suggests {a} {value}.",
    ),
    training=(
      "The comet {subject} is shaped like {a} {value}.",
      "In shape the comet {subject} resembles {a} {value}.",
      "The shape of the comet {subject} is {a} {value}.",
    ),
  ),
)

_STAR = (
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

_FESTIVAL = (
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

_NOVEL = (
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

KINDS: dict[str, tuple[Relation, ...]] = {
  "kingdom": _KINGDOM,
  "town": _TOWN,
  "ship": _SHIP,
  "river": _RIVER,
  "guild": _GUILD,
  "castle": _CASTLE,
  "comet": _COMET,
  "star": _STAR,
  "festival": _FESTIVAL,
  "novel": _NOVEL,
}
