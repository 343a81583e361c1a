"""Lists and copies the examples, the gin files and the scripts that launch on clouds."""

import ast
import pathlib
import shutil

from realm_jax.foundations import object_store
from realm_jax.text import terminal

_PACKAGE = pathlib.Path(__file__).resolve().parents[2]
_FOLDERS = ("examples", "gin", "launch")


def examples(output: str | None = None) -> None:
  """Lists the examples and launch scripts; with `output`, copies them and the gin files there.

  Args:
    output: A new directory.

  Raises:
    ValueError: If there is something already, or it is not on this machine.
  """
  if output is None:
    for path in sorted(_PACKAGE.glob("examples/*.*")) + sorted(_PACKAGE.glob("launch/**/*.py")):
      text = path.read_text("utf-8")
      first = (ast.get_docstring(ast.parse(text)) or "") if path.suffix == ".py" else "A notebook."
      print(f"{path.relative_to(_PACKAGE)!s:<34} {first.partition(chr(10))[0]}")
    return
  object_store.check_local(output=output)
  target = pathlib.Path(object_store.absolute(output))
  if target.exists():
    raise ValueError(f"{output} exists; nothing there is replaced, so choose a new directory")
  for folder in _FOLDERS:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_PACKAGE / folder, target / folder, ignore=ignored)
  print(terminal.line(f"copied {', '.join(_FOLDERS)} to {output}"))
