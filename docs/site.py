"""What `mkdocs.yml` does not say: which files become pages, and how code and notebooks do."""

import json
import pathlib
import re

from mkdocs.structure.files import File, Files

import realm_jax

ROOT = pathlib.Path(__file__).resolve().parent.parent
_PAGES = ("*.md", "docs/**/*.md", "launch/**/*.md")
_CODE = ("examples/*.py", "examples/*.ipynb")
_IMAGES = "docs/images/*"
_LINK_TO_CODE = re.compile(r"\(((?:\.\./)*examples/\w+\.(?:py|ipynb))\)")


def on_files(files: Files, *, config) -> Files:
  """Returns the pages under their paths in the repository, where their links hold."""
  found = [file for file in files if file.src_dir != config.docs_dir]  # the theme's
  for pattern in (*_PAGES, _IMAGES):
    for path in sorted(ROOT.glob(pattern)):
      name = path.relative_to(ROOT).as_posix()
      found.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
  for pattern in _CODE:
    for path in sorted(ROOT.glob(pattern)):
      page = _notebook(path) if path.suffix == ".ipynb" else _program(path)
      name = path.relative_to(ROOT).as_posix()
      found.append(File.generated(config, f"{name}.md", content=page))
  found.append(File.generated(config, "api.md", content=_api()))
  return Files(found)


def on_page_markdown(markdown: str, **_) -> str:
  """Returns a page whose links to code go to the pages made of it."""
  return _LINK_TO_CODE.sub(r"(\1.md)", markdown)


def _program(path: pathlib.Path) -> str:
  return f"# `{path.name}`\n\n{_fenced(path.read_text('utf-8'), 'python')}"


def _notebook(path: pathlib.Path) -> str:
  """Returns the cells of a notebook, and the texts and images that it was stored with."""
  parts = []
  for cell in json.loads(path.read_text("utf-8"))["cells"]:
    source = "".join(cell["source"])
    parts.append(source if cell["cell_type"] == "markdown" else _fenced(source, "python"))
    for output in cell.get("outputs", ()):
      data = output.get("data", {})
      if "image/png" in data:
        parts.append(f"![](data:image/png;base64,{''.join(data['image/png']).strip()})")
      else:
        parts.append(_fenced("".join(output.get("text", data.get("text/plain", ""))), "text"))
  return "\n\n".join(parts)


def _fenced(text: str, language: str) -> str:
  return f"```{language}\n{text.rstrip()}\n```"


def _api() -> str:
  """Returns the page of the public names, whose docstrings mkdocstrings reads."""
  names = sorted(set(realm_jax.__all__) - {"__version__"}, key=str.lower)
  homes = [f"::: realm_jax.{realm_jax._HOME_OF[name]}.{name}" for name in names]
  return "\n\n".join(["# API", "The public names, as `realm_jax.NAME`.", *homes])
