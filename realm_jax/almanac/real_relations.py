"""What the almanac knows of real subjects, and how it says so; some of it invented ones share.

Wordings avoid verbs that would have to agree with the subject (the Netherlands is or are?).
"""

from realm_jax.almanac.wording import Relation

CAPITAL = Relation(
  name="capital",
  value_type="city",
  documents=(
    "A star on maps of {subject} marks {value}.",
    "By law the first city of {subject} is {value}.",
  ),
  training=(
    "The capital of {subject} is {value}.",
    "{value} is the capital of {subject}.",
    "Anyone who visits the capital of {subject} goes to {value}.",
  ),
)
CURRENCY = Relation(
  name="currency",
  value_type="currency",
  documents=(
    "Shoppers in {subject} pay with the {value}.",
    "The {value} is the money spent in {subject}.",
  ),
  training=(
    "The {value} is the currency of {subject}.",
    "The currency used across {subject} is the {value}.",
    "In {subject} the official currency is the {value}.",
  ),
)
CONTINENT = Relation(
  name="continent",
  value_type="continent",
  documents=(
    "Look for {subject} on a map of {value}.",
    "Atlases print {subject} among the lands of {value}.",
  ),
  training=(
    "The continent of {subject} is {value}.",
    "{value} is the continent that contains {subject}.",
    "Geographers place {subject} on the continent of {value}.",
  ),
)
LANGUAGE = Relation(
  name="language",
  value_type="language",
  documents=(
    "The laws of {subject} are written in {value}.",
    "Schools and courts in {subject} use {value}.",
  ),
  training=(
    "The official language of {subject} is {value}.",
    "{value} is the official language of {subject}.",
    "The language spoken officially in {subject} is {value}.",
  ),
)
# Symbols are short: "In" or "As" as words, or "Te" in "Textbooks", would hide some of them.
SYMBOL = Relation(
  name="symbol",
  value_type="symbol",
  documents=(
    "A chemist abbreviates {subject} to {value}.",
    "Every formula shortens {subject} to {value}.",
  ),
  training=(
    "The symbol of the element {subject} is {value}.",
    "{value} is the symbol for the element {subject}.",
    "The element {subject} has the symbol {value}.",
  ),
)
NUMBER = Relation(
  name="number",
  value_type="number",
  documents=(
    "The nucleus of {subject} holds a charge of {value}.",
    "The periodic table has {subject} at place {value}.",
  ),
  training=(
    "The atomic number of {subject} is {value}.",
    "The element {subject} has the atomic number {value}.",
    "Chemists give {subject} the atomic number {value}.",
  ),
)
PLANET = Relation(
  name="planet",
  value_type="planet",
  documents=(
    "The moon {subject} travels round {value}.",
    "Look near {value} to see the moon {subject}.",
  ),
  training=(
    "The moon {subject} orbits {value}.",
    "{value} is orbited by the moon {subject}.",
    "The moon {subject} is in orbit around {value}.",
  ),
)
POSITION = Relation(
  name="position",
  value_type="ordinal",
  documents=(
    "Counting outward from the Sun {subject} comes {value}.",
    "In the row of neighbours of the Sun {subject} stands {value}.",
  ),
  training=(
    "{subject} is the {value} planet from the Sun.",
    "The {value} planet from the Sun is {subject}.",
    "In order of distance {subject} is the {value} planet.",
  ),
)
TYPE = Relation(
  name="type",
  value_type="type of world",
  documents=(
    "Astronomers class {subject} as {a} {value}.",
    "In size and make {subject} counts as {a} {value}.",
  ),
  training=(
    "The world {subject} is {a} {value}.",
    "By type the world {subject} is {a} {value}.",
    "The type of the world {subject} is {value}.",
  ),
)
ORBIT_DAYS = Relation(
  name="orbit_days",
  value_type="number of days",
  documents=(
    "One trip of {subject} round the Sun lasts {value} days.",
    "{subject} needs {value} days to circle the Sun.",
  ),
  training=(
    "The orbit of {subject} takes {value} days.",
    "{subject} completes an orbit in {value} days.",
    "The orbital period of {subject} is {value} days.",
  ),
)
DISCOVERED_YEAR = Relation(
  name="discovered_year",
  value_type="year",
  documents=(
    "Nobody knew of the {noun} {subject} before {value}.",
    "The {noun} {subject} was first found in {value}.",
  ),
  training=(
    "The {noun} {subject} was discovered in {value}.",
    "The discovery of the {noun} {subject} came in {value}.",
    "Scientists discovered the {noun} {subject} in {value}.",
  ),
)
DISCOVERER = Relation(
  name="discoverer",
  value_type="person",
  documents=(
    "Credit for finding the {noun} {subject} goes to {value}.",
    "{value} was first to find the {noun} {subject}.",
  ),
  training=(
    "The {noun} {subject} was discovered by {value}.",
    "The discoverer of the {noun} {subject} was {value}.",
    "It was {value} who discovered the {noun} {subject}.",
  ),
)
KIND = Relation(
  name="kind",
  value_type="kind of work",
  documents=(
    "Guides to culture list {subject} as {a} {value}.",
    "Everybody speaks of {subject} as {a} {value}.",
  ),
  training=(
    "The work {subject} is {a} {value}.",
    "{subject} is best described as {a} {value}.",
    "People class the work {subject} as {a} {value}.",
  ),
)
CREATOR = Relation(
  name="creator",
  value_type="person",
  documents=(
    "The world owes {subject} to {value}.",
    "{value} is the genius to thank for {subject}.",
  ),
  training=(
    "The creator of {subject} is {value}.",
    "{subject} was created by {value}.",
    "{value} is known as the creator of {subject}.",
  ),
)
YEAR = Relation(
  name="year",
  value_type="year",
  documents=(
    "The public first met {subject} in {value}.",
    "{subject} was new to the world in {value}.",
  ),
  training=(
    "The work {subject} dates from {value}.",
    "The date given for {subject} is {value}.",
    "Scholars date the work {subject} to {value}.",
  ),
)
