import pytest

from realm_jax.demo.real_facts import TABLES

ROWS = {category: table.rows for category, table in TABLES.items()}


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
