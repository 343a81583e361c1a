import re

import pytest

from realm_jax.almanac.real_facts import TABLES, values

ROWS = {category: table.rows for category, table in TABLES.items()}


def subjects(category):
  return [next(iter(row.values())) for row in ROWS[category]]


@pytest.mark.parametrize(
  ("category", "rows", "facts"),
  [
    ("country", 193, 650),
    ("element", 118, 330),
    ("planet", 13, 35),
    ("moon", 111, 230),
    ("work", 240, 650),
  ],
)
def test_table_is_complete(category, rows, facts):
  names = subjects(category)
  filled = [
    row[relation.name]
    for row in ROWS[category]
    for relation in TABLES[category].relations
    if row[relation.name]
  ]
  if category in ("country", "element"):
    assert len(names) == rows
  assert len(names) >= rows
  assert len(filled) >= facts
  assert len(set(names)) == len(names)


@pytest.mark.parametrize("category", TABLES)
def test_cells_are_clean(category):
  columns = list(ROWS[category][0])
  assert set(columns[1:]) - {"article"} == {r.name for r in TABLES[category].relations}
  for row in ROWS[category]:
    assert list(row) == columns  # no cell beyond the header's
    assert next(iter(row.values()))
    assert any(row[relation.name] for relation in TABLES[category].relations)
    for cell in row.values():
      assert cell == cell.strip()
      assert "  " not in cell
      assert ". " not in cell


@pytest.mark.parametrize(
  ("category", "column"),
  [
    ("element", "symbol"),
    ("element", "number"),
    ("planet", "type"),
    ("moon", "planet"),
    ("work", "kind"),
    ("work", "creator"),
  ],
)
def test_required_column_has_no_empty_cell(category, column):
  assert all(row[column] for row in ROWS[category])


def test_elements_are_numbered_in_order_and_symbols_differ():
  assert [row["number"] for row in ROWS["element"]] == [str(n) for n in range(1, 119)]
  symbols = [row["symbol"] for row in ROWS["element"]]
  assert len(set(symbols)) == 118
  assert all(re.fullmatch("[A-Z][a-z]?", symbol) for symbol in symbols)


def test_years_have_four_digits():
  years = [
    row[column]
    for rows in ROWS.values()
    for row in rows
    for column in ("year", "discovered_year")
    if row.get(column)
  ]
  assert len(years) > 300
  assert all(re.fullmatch("1[1-9][0-9]{2}|20[0-2][0-9]", year) for year in years)


def test_countries_have_plausible_cells():
  continents = {row["continent"] for row in ROWS["country"]}
  assert continents - {""} == {
    "Africa",
    "Asia",
    "Europe",
    "North America",
    "Oceania",
    "South America",
  }
  capitals = [row["capital"] for row in ROWS["country"] if row["capital"]]
  assert len(set(capitals)) == len(capitals)
  currencies = values("country", "currency")
  assert len(currencies) >= 60
  assert all(currency == currency.lower() for currency in currencies)


@pytest.mark.parametrize(
  ("category", "subject", "relation", "value"),
  [
    ("country", "United Kingdom", "currency", "pound"),
    ("country", "United Kingdom", "article", "the"),
    ("country", "Japan", "currency", "yen"),
    ("country", "Netherlands", "article", "the"),
    ("country", "France", "article", ""),
    ("element", "tungsten", "symbol", "W"),
    ("planet", "Mars", "position", "fourth"),
    ("moon", "Triton", "planet", "Neptune"),
    ("work", "Hamlet", "creator", "Shakespeare"),
    ("work", "Guernica", "kind", "painting"),
  ],
)
def test_known_fact(category, subject, relation, value):
  row = ROWS[category][subjects(category).index(subject)]
  assert row[relation] == value
