"""Markdown is read as the text that its readers see."""

import pytest

from realm_jax.corpus.documents import Document
from realm_jax.corpus.formats.markdown import read_markdown
from realm_jax.corpus.formats.outline import Mark
from realm_jax.corpus.input_files import InputFile
from realm_jax.corpus.reading import DocumentReader

TEXTS = [
  ("This step is _mandatory_ and __irreversible__.", "This step is mandatory and irreversible."),
  ("un*frigging*able, snake_case_name, 2 * 3 * 4", "unfriggingable, snake_case_name, 2 * 3 * 4"),
  ("***all*** `code_x` ~~gone~~ \\*kept\\*", "all code_x gone *kept*"),
  (
    '[a link](http://x.y "t") and <https://x.y> ![alt _t_](i.png)',
    "a link (http://x.y) and https://x.y alt t",
  ),
  ("[ref][1] &amp; &lt;b&gt;\n\n[1]: http://x.y", "ref (http://x.y) & <b>"),
  ("one\ntwo  \nthree<br>four", "one\ntwo\nthree\nfour"),
  ("- a\n- b\n    - c\n\n1. d\n\n2. e", "a\nb\nc\n\nd\ne"),
  ("> quoted\n> text\n\n---\n\nafter", "quoted\ntext\n\nafter"),
  ("| a | *b* |\n|---|:-:|\n| 1 | |\n| | 4 |\n\nafter", "a b\n1\n4\n\nafter"),
  ("```py\nx_1 = [_a_]\n\n# no heading\n```\n\n    y_2\n", "x_1 = [_a_]\n\n# no heading\n\ny_2"),
  ("a <!-- hidden\nwords --> b\n\n<!-- more\n\nhidden -->\n\nc", "a  b\n\nc"),
  ('<p align="center">\n  <b>In</b> HTML &amp; so\n</p>\n\na < b', "In HTML & so\n\na < b"),
  ("<script>\nhidden()\n</script>\n\nshown", "shown"),
  ("- [ ] to do", "[ ] to do"),
  ("a\r\n\r\nb", "a\n\nb"),
  ("<ul><li>quartz</li><li>basalt</li></ul>", "quartz\nbasalt"),
  ("<p>a</p><p>b</p>\n\n<p>mica<br/>slate</p>", "a\nb\n\nmica\nslate"),
  ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a  b\nc"),
  ("<div>H<sub>2</sub>O un<b>frigging</b>able</div>", "H2O unfriggingable"),
  ("<br>\nQuartz is hard.\nTopaz, too.", "Quartz is hard.\nTopaz, too."),
  ("<div>\n<script>\na()\n\nb()\n</script>shown</div>\n\n<style>p{}</style>\n\nc", "shown\n\nc"),
  ("a <script>b()</script> c", "a\nc"),
  ("The <script> tag.\n\nMore.", "The\ntag.\n\nMore."),
  ('<div title="1 > 0">a &eacute; < b</div>', "a é < b"),
  ('<img src="x.png" alt="A &amp; B"> <a href="https://x.y/z">c</a>', "A & B c (https://x.y/z)"),
  (
    "[a](b.md) [c](#d) <!-- e -->[https://x.y](https://x.y) [f](data:x,y)",
    "a c https://x.y [f](data:x,y)",
  ),
]


@pytest.mark.parametrize(("markdown", "text"), TEXTS)
def test_markup_is_no_part_of_a_text(markdown, text):
  found = read_markdown(markdown)
  lines = "\n".join(line.strip() for line in found.text.split("\n"))
  assert lines == text and not found.title and not found.fields


TITLED = [  # Markdown, its title, text and fields
  ("# C# notes ##\n\nMore.", "C# notes", "More.", {}),
  ("Wing _flutter_\nin dives\n====\n\nMore.", "Wing flutter in dives", "More.", {}),
  ("<!-- badge -->\n\n## A `b`\n\n# C\n", "A b", "C", {}),
  ("First words.\n\n## Late\n\nMore.", "Late", "First words.\n\nLate\n\nMore.", {}),
  ("> # Quoted\n\n- # Listed\n\n# Title\n", "Title", "Quoted\n\nListed\n\nTitle", {}),
  ("#\n\n#hashtag\n\n# Title\n\nx", "Title", "#hashtag\n\nTitle\n\nx", {}),
  ("---\ntitle: Wing flutter\n---\n\n# Wing flutter\n\nMore.", "Wing flutter", "More.", {}),
  ("---\ntitle: Wing flutter\n---\n# Part 1\nMore.", "Wing flutter", "Part 1\n\nMore.", {}),
  ("---\ntitle: 2024\ndraft: true\n---\nMore.", "2024", "More.", {"draft": True}),
  ('+++\ntitle = "Heat flow"\nweight = 3\n+++\n\nMore.', "Heat flow", "More.", {"weight": 3}),
  ("---\r\ntitle: A\r\n...\r\nMore.\r\n", "A", "More.", {}),
  ("\n---\ntags: [a, b]\n---\n# A\nMore.", "A", "More.", {"tags": ["a", "b"]}),
  (
    "---\nid: 7\ntext: no\nnest: {a: 1}\nn: .nan\n---\n# A\nMore.",
    "A",
    "More.",
    {"nest": {"a": 1}, "n": None},
  ),
  ("---\ntitle: only\n---", "only", "", {}),
  ("---\n\nNo mapping.\n\n---\n\nMore.", "", "No mapping.\n\nMore.", {}),
  ("---\n- [ broken\n---\n\nMore.", "", "[ broken\n\nMore.", {}),
  ("+++\nno toml\n+++\n", "", "+++\nno toml\n+++", {}),
  (
    "---\ntitle: A\nby: {name: Ann}\nlinks:\n  - url: x\n---\nB",
    "A",
    "B",
    {"by": {"name": "Ann"}, "links": [{"url": "x"}]},
  ),
  (
    "+++\ntitle = 'A'\nd = 2024-01-05\n[x]\ny = inf\n+++\nB",
    "A",
    "B",
    {"d": "2024-01-05", "x": {"y": "inf"}},
  ),
  (
    "---\nbase: &b {n: 1, m: 2}\nown: {<<: *b, n: 3}\n---\nB",
    "",
    "B",
    {"base": {"n": 1, "m": 2}, "own": {"n": 3, "m": 2}},
  ),
  # What is broken is read key by key.
  (
    "---\ntitle: Stones: a primer\ntags: [a, b]\nby: @kim\nd: 2024-02-31\n---\nB",
    "Stones: a primer",
    "B",
    {"tags": ["a", "b"], "by": "@kim", "d": "2024-02-31"},
  ),
  ("---\ntags:\n\t- a\ntitle: A\n---\nB", "A", "B", {"tags": ["a"]}),
  ("+++\ntitle = 'A'\nn = \n[x]\ny = 1\n+++\nB", "A", "B", {"n": "", "x": {"y": 1}}),
  ("---\ntitle: never closed\n", "", "title: never closed", {}),
]


@pytest.mark.parametrize(
  ("written", "value"),
  [(5, 5), (-0.5, -0.5), ("true", True), ("", None), ("~", None), ('"5"', "5"), ("!!int 5", 5)]
  + [(text, text) for text in "no on 12:30 01234 1.10 1e5 0x10 1_000 2024-01-05 -.inf".split()]
  + [("9" * 5_000, "9" * 5_000), ("2024-01-05 12:00:00", "2024-01-05 12:00:00")],
)
def test_values_of_front_matter_are_as_they_are_written(written, value):
  fields = read_markdown(f"---\nx: {written}\n---\nB").fields
  assert fields == {"x": value} and type(fields["x"]) is type(value)


@pytest.mark.parametrize(("markdown", "title", "text", "fields"), TITLED)
def test_the_title_is_that_of_the_front_matter_or_the_first_heading(markdown, title, text, fields):
  assert read_markdown(markdown)[:3] == (title, text, fields)


@pytest.mark.parametrize(
  ("content", "title", "text"),
  [
    ("---\ndate: 2024-01-05\n---\n# Moss\n\nIt _grows_.", "Moss", "It grows."),
    ("Moss\n\nIt _grows_.", "Moss", "It grows."),
    ("It _grows_.", "notes", "It grows."),
    ("# Moss\n", "Moss", ""),
    (f"{'It grows. ' * 20}\n\nMore.", "notes", f"{'It grows. ' * 20}".strip() + "\n\nMore."),
  ],
)
def test_files_of_markdown_are_documents(tmp_path, content, title, text):
  path = tmp_path / "notes.md"
  path.write_text(content)
  file = InputFile(path=str(path), name="notes.md", format="markdown")
  (document,) = DocumentReader([file])
  assert document == Document(id="notes.md", title=title, text=text)
  assert document.fields == ({"date": "2024-01-05"} if "date" in content else {})


def test_sections_begin_at_their_headings():
  found = read_markdown("# Moss\n\nSmall.\n\n## Where [it](https://a.b) grows\n\nShade.\n\n- a\n")
  assert found.text == "Small.\n\nWhere it grows\n\nShade.\n\na"
  assert found.outline == (Mark(8, 0, "Where it grows"),)
