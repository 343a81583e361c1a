import pytest

from realm_jax.almanac.real_facts import TABLES

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
