"""Files of a record a line."""

import json


def write_lines(path, *records):
  """Writes records as JSON lines; returns the path."""
  path.write_text("".join(json.dumps(record) + "\n" for record in records))
  return path
