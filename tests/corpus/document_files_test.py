"""PDF, office files, pages and mail: their text, pages and headings, and files that are hostile."""

import io
import os
import signal
import sys
import time
import zipfile
from typing import Any

import pytest

from realm_jax.corpus import limits
from realm_jax.corpus.documents import BadRecord, Document
from realm_jax.corpus.formats import document_files, document_reader
from realm_jax.corpus.formats.outline import Mark
from realm_jax.corpus.input_files import find_files
from realm_jax.corpus.reading import DocumentReader
from realm_jax.foundations.bounded_process import BoundedProcess


def records(path, content) -> list[Any]:
  path.write_bytes(content)
  (files,) = find_files([str(path)])
  return list(DocumentReader(files))


def document(path, content):
  (found,) = records(path, content)
  assert isinstance(found, Document), found
  return found


def pdf(*pages, title=""):
  """Returns a PDF of pages, each of lines with their size."""
  fonts = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
  objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", fonts, b"<</Title(%s)>>" % title.encode()]
  kids = []
  for page in pages:
    y, lines = 780, []
    for size, line in page:
      y -= 1.2 * size
      lines.append(b"BT /F1 %d Tf 72 %.1f Td (%s) Tj ET" % (size, y, line.encode("cp1252")))
    content = b"\n".join(lines)
    objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(content), content))
    kids.append(b"%d 0 R" % (len(objects) + 1))
    objects.append(
      b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents %d 0 R"
      b"/Resources<</Font<</F1 3 0 R>>>>>>" % len(objects)
    )
  objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), len(kids))
  out, places = b"%PDF-1.4\n", []
  for number, each in enumerate(objects, start=1):
    places.append(len(out))
    out += b"%d 0 obj%s endobj\n" % (number, each)
  table = b"".join(b"%010d 00000 n \n" % place for place in places)
  return out + (
    b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R/Info 4 0 R>>\n"
    b"startxref\n%d\n%%%%EOF" % (len(places) + 1, table, len(places) + 1, len(out))
  )


def zipped(**parts):
  content = io.BytesIO()
  with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
    for name, part in parts.items():
      file.writestr(name.replace("__", "/"), part)
  return content.getvalue()


def xml(inner, *, of="w"):
  return f'<?xml version="1.0"?><{of}:x xmlns:{of}="urn:{of}">{inner}</{of}:x>'


def docx(body, **parts):
  return zipped(**{"word__document.xml": xml(body), **parts})


def paragraph(text, *, style=""):
  style = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
  return f"<w:p>{style}<w:r><w:t>{text}</w:t></w:r></w:p>"


STYLES = xml(
  '<w:style w:styleId="H1"><w:name w:val="heading 1"/></w:style>'
  '<w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="H1"/></w:style>'
)


def test_a_pdf_has_pages_and_headings(tmp_path):
  pytest.importorskip("pypdfium2")
  lines = [
    (24, "Moss"),
    (11, "Moss grows where the sun is seldom seen, and trans-"),
    (11, "plants well."),
  ]
  found = document(tmp_path / "a.pdf", pdf(lines, [(24, "Oak"), (11, "Oaks are tall.")]))
  assert found.text == (
    "Moss\n\nMoss grows where the sun is seldom seen, and transplants well.\n\nOak"
    "\n\nOaks are tall."
  )
  assert found.title == "Moss" and found.id == "a.pdf"
  assert found.outline == (Mark(0, 1, "Moss"), Mark(found.text.index("Oak"), 2, "Oak"))


@pytest.mark.parametrize(
  ("title", "expected"),
  [("On moss", "On moss"), ("draft3.docx", "a"), ("Microsoft Word - x", "a"), ("Untitled", "a")],
)
def test_a_title_is_one_that_somebody_gave(tmp_path, title, expected):
  pytest.importorskip("pypdfium2")
  assert document(tmp_path / "a.pdf", pdf([(11, "Moss is small.")], title=title)).title == expected


def test_pages_without_text_are_named(tmp_path):
  pytest.importorskip("pypdfium2")
  (scan,) = records(tmp_path / "a.pdf", pdf([], []))
  assert scan.kind == "records_without_text" and "no text on its pages (2)" in scan.reason
  found, blank = records(tmp_path / "b.pdf", pdf([(11, "Moss.")], []))
  assert found.text == "Moss." and blank.name.endswith("b.pdf: page 2")


def test_a_docx_is_read_as_it_is_shown(tmp_path):
  body = (
    paragraph("Research &amp; Development", style="Own")
    + "<w:p><w:r><w:t>AT&amp;T &lt;b&gt;</w:t><w:tab/><w:t>5 %</w:t></w:r>"
    "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
    "<w:moveFrom><w:r><w:t>moved</w:t></w:r></w:moveFrom>"
    "<w:ins><w:r><w:t> new</w:t></w:r></w:ins></w:p>"
    "<w:tbl><w:tr><w:tc>"
    + paragraph("a")
    + "<w:tbl><w:tr><w:tc>" + paragraph("inner") + "</w:tc></w:tr></w:tbl>"
    + "</w:tc><w:sdt><w:tc>" + paragraph("b") + "</w:tc></w:sdt></w:tr><w:tr><w:tc>"
    + paragraph("c")
    + "</w:tc></w:tr></w:tbl>"
  )  # fmt: skip
  notes = xml(paragraph("A note."))
  found = document(
    tmp_path / "a.docx",
    docx(body, **{"word__styles.xml": STYLES, "word__footnotes.xml": notes}),
  )
  assert found.text == "Research & Development\n\nAT&T <b>\t5 % new\n\na inner b\nc\n\nA note."
  assert found.outline == (Mark(0, 0, "Research & Development"),)


def test_pages_of_a_docx_are_those_that_were_counted(tmp_path):
  break_ = '<w:p><w:r><w:br w:type="page"/></w:r></w:p>'
  counted = "<w:p><w:r><w:lastRenderedPageBreak/><w:t>Two.</w:t></w:r></w:p>"
  found = document(tmp_path / "a.docx", docx(paragraph("One.") + break_ + counted))
  assert [mark.page for mark in found.outline] == [1, 2]
  assert document(tmp_path / "b.docx", docx(paragraph("One.") + break_)).outline == ()


def relations(**targets):
  inner = "".join(f'<r:Relationship Id="{id}" Target="{to}"/>' for id, to in targets.items())
  return xml(inner, of="r")


def test_slides_come_in_their_order_with_their_notes(tmp_path):
  def slide(title, text):
    return xml(
      f'<a:sp><a:nvPr><a:ph type="title"/></a:nvPr><a:p><a:t>{title}</a:t></a:p></a:sp>'
      f"<a:sp><a:p><a:t>{text}</a:t></a:p></a:sp>"
      '<a:sp><a:nvPr><a:ph type="sldNum"/></a:nvPr><a:p><a:t>7</a:t></a:p></a:sp>',
      of="a",
    )

  order = '<p:sldId id="9" rid="r2"/><p:sldId id="8" rid="r1"/>'
  found = document(
    tmp_path / "a.pptx",
    zipped(
      **{
        "ppt__presentation.xml": xml(order, of="p"),
        "ppt___rels__presentation.xml.rels": relations(
          r1="slides/slide1.xml", r2="/ppt/slides/slide2.xml"
        ),
        "ppt__slides__slide1.xml": slide("Oak", "tall"),
        "ppt__slides__slide2.xml": slide("Moss", "small"),
        "ppt__slides___rels__slide2.xml.rels": relations(n="../notesSlides/notesSlide1.xml"),
        "ppt__notesSlides__notesSlide1.xml": xml("<a:p><a:t>Say it.</a:t></a:p>", of="a"),
      }
    ),
  )  # fmt: skip
  assert found.text == "Moss\n\nsmall\n\nSay it.\n\nOak\n\ntall"
  assert [mark[1:] for mark in found.outline] == [(1, "Moss"), (2, "Oak")]


def test_cells_of_a_sheet_are_as_it_shows_them(tmp_path):
  cells = (
    '<x:row><x:c t="s"><x:v>0</x:v></x:c><x:c><x:v>0.30000000000000004</x:v></x:c></x:row>'
    '<x:row><x:c s="1"><x:v>45000.25</x:v></x:c><x:c s="2"><x:v>45000</x:v></x:c>'
    '<x:c t="b"><x:v>1</x:v></x:c><x:c t="inlineStr"><x:is><x:t>in</x:t></x:is></x:c></x:row>'
  )
  styles = (
    '<x:numFmt numFmtId="164" formatCode="[Red]&quot;day&quot;0"/>'
    '<x:numFmt numFmtId="165" formatCode="dd/mm/yy"/><x:cellXfs><x:xf numFmtId="164"/>'
    '<x:xf numFmtId="22"/><x:xf numFmtId="165"/></x:cellXfs>'
  )
  found = document(
    tmp_path / "a.xlsx",
    zipped(
      **{
        "xl__workbook.xml": xml('<x:sheet name="Prices" rid="r1"/>', of="x"),
        "xl___rels__workbook.xml.rels": relations(r1="/xl/sheets/one.xml"),
        "xl__sheets__one.xml": xml(cells, of="x"),
        "xl__styles.xml": xml(styles, of="x"),
        "xl__sharedStrings.xml": xml(
          "<x:si><x:t>東京</x:t><x:rPh><x:t>トウキョウ</x:t></x:rPh></x:si>", of="x"
        ),
      }
    ),
  )
  assert found.text == "Prices\n\n東京 0.3\n2023-03-15 06:00:00 2023-03-15 TRUE in"
  assert found.outline == (Mark(0, 0, "Prices"),)


def test_opendocument_has_text_between_its_elements(tmp_path):
  inner = (
    "<o:h>Moss</o:h><o:p>It is<o:s o:c='2'/>small<o:annotation><o:p>No!</o:p></o:annotation>"
    "<o:note><o:note-citation>1</o:note-citation><o:p>A note.</o:p></o:note> and green.</o:p>"
  )
  found = document(tmp_path / "a.odt", zipped(**{"content.xml": xml(inner, of="o")}))
  assert found.text == "Moss\n\nIt is  small and green.\n\nA note."


def test_an_epub_is_read_in_the_order_of_its_spine(tmp_path):
  package = (
    "<e:title>The Book</e:title><e:item id='a' href='a%20b.xhtml'/><e:item id='b' href='b.xhtml'/>"
    "<e:itemref idref='b'/><e:itemref idref='a'/>"
  )
  parts = {
    "META-INF__container.xml": xml("<e:rootfile full-path='O/p.opf'/>", of="e"),
    "O__p.opf": xml(package, of="e"),
    "O__a b.xhtml": "<html><body><h1>Two</h1><p>Oak.</p></body></html>",
    "O__b.xhtml": "<html><body><h1>One</h1><p>Moss.</p></body></html>",
  }
  found = document(tmp_path / "a.epub", zipped(**parts))
  assert (found.title, found.text) == ("The Book", "One\n\nMoss.\n\nTwo\n\nOak.")
  locked = {**parts, "META-INF__encryption.xml": '<CipherReference URI="O/a%20b.xhtml"/>'}
  (refused,) = records(tmp_path / "b.epub", zipped(**locked))
  assert refused.reason == "it is protected against copying"


@pytest.mark.parametrize(
  ("name", "content", "text"),
  [
    ("a.html", b"<title>T</title><nav>Menu</nav><h1>A &amp; B</h1><p>x<br>y", "A & B\n\nx\ny"),
    ("a.html", b"<script>if(a<b){'</p>'}</script><p>kept<style>p{}</style>", "kept"),
    ("a.html", b"top<main><p>inside</main>foot", "inside"),
    ("a.html", b"<table><tr><td>a<td>b<tr><td>c</table>", "a b\nc"),
    ("a.html", b"<pre>def f():\n  return 1</pre>", "def f():\n  return 1"),
    ("a.htm", "<meta charset=latin1>Grüße".encode("latin1"), "Grüße"),
    ("a.htm", "Grüße".encode("cp1252"), "Grüße"),
    ("a.xhtml", "Grüße".encode("utf-16"), "Grüße"),
    (
      "a.rtf",
      rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}{\*\x y}Caf\'e9 \u8364?\uc0\u333 s\par {\b Bold}\par}",
      "Café €ōs\n\nBold",
    ),
    (
      "a.eml",
      b"From: Ann <a@b.c>\nSubject: Tea\nContent-Type: text/html\n\n<p>Dear <b>Bob</b>",
      "From: Ann <a@b.c>\n\nDear Bob",
    ),
  ],
)  # fmt: skip
def test_pages_rtf_and_mail(tmp_path, name, content, text):
  assert document(tmp_path / name, content).text == text


def test_what_a_file_is_decides_whatever_its_name_says(tmp_path):
  assert document(tmp_path / "a.txt", docx(paragraph("Moss."))).text == "Moss."
  assert document(tmp_path / "a.pdf", docx(paragraph("Moss."))).text == "Moss."


BOMB = b"0" * (limits.UNPACKED + 2)
ENTITIES = '<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'

# A name in the file is longer than in its directory, and quoted where this is told.
LONG_NAME = docx("x" * 5_000).replace(b"\x11\0\0\0word", b"\xff\1\0\0word", 1)


@pytest.mark.parametrize(
  ("name", "content", "reason"),
  [
    ("a.docx", zipped(**{"word__document.xml": BOMB}), "unpack to more than"),
    ("a.docx", zipped(**{"word__document.xml": ENTITIES}), "declares entities"),
    ("a.docx", docx("<w:p>")[:-40], "damaged"),
    ("a.docx", zipped(**{"word__document.xml": "<x>"}), "damaged"),
    ("a.docx", LONG_NAME, "damaged"),
    ("a.docx", docx("<w:a>" * 20_000 + "</w:a>" * 20_000), "damaged"),
    ("a.docx", zipped(**{"a.txt": "Moss."}), "it is a ZIP archive; unpack it"),
    ("a.xlsx", b"\xd0\xcf\x11\xe0" + b"0" * 600, "Office before 2007"),
    ("a.docx", b"Moss.", "not what its name says"),
    ("a.eml", b"\0\1", "no message"),
  ],
)  # fmt: skip
def test_a_hostile_file_ends_in_a_line(tmp_path, name, content, reason):
  (bad,) = records(tmp_path / name, content)
  assert isinstance(bad, BadRecord) and bad.kind == "broken_records"
  assert reason in bad.reason and "\n" not in bad.reason and len(bad.reason) <= 200


@pytest.mark.parametrize("cut", [20, 200, 0.5, 0.9])
def test_a_damaged_pdf_ends_in_a_line(tmp_path, cut):
  pytest.importorskip("pypdfium2")
  whole = pdf([(11, "Moss is small.")])
  (found,) = records(tmp_path / "a.pdf", whole[: int(cut if cut > 1 else cut * len(whole))])
  assert isinstance(found, Document) or "it is damaged" in found.reason


def test_without_its_extra_a_pdf_names_it(tmp_path, monkeypatch):
  monkeypatch.setattr(document_files, "_reader", lambda: document_reader.answer)
  monkeypatch.setitem(sys.modules, "pypdfium2", None)
  monkeypatch.delitem(sys.modules, "realm_jax.corpus.formats.pdf_text", raising=False)
  (bad,) = records(tmp_path / "a.pdf", pdf([(11, "Moss.")]))
  assert bad.kind == "unreadable_files" and "[documents]" in bad.reason


MISBEHAVING = """
import os, signal, time
from realm_jax.foundations.bounded_process import answer_requests
def answer(request):
  if request == b"die": os.kill(os.getpid(), signal.SIGSEGV)
  if request == b"spin":
    while True: pass
  if request == b"write": open("written", "w").write("x" * 100)
  if request == b"grow": return str(len(b"0" * 2**33)).encode()
  return request.upper()
answer_requests(answer, memory=2**32, seconds=1)
"""


def test_a_process_within_bounds_is_started_anew(tmp_path, monkeypatch):
  (tmp_path / "misbehaving.py").write_text(MISBEHAVING)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.chdir(tmp_path)
  process = BoundedProcess("misbehaving", seconds=1)
  for request, error, reason in [
    (b"die", ChildProcessError, signal.SIGSEGV.name),
    (b"spin", TimeoutError, "more than 1 seconds"),
    (b"grow", ChildProcessError, "exit 1"),
  ]:
    assert process(b"moss") == b"MOSS"
    with pytest.raises(error, match=reason):
      process(request)
  assert process(b"write") == b"WRITE" and not os.path.getsize("written")
  assert process(b"0" * 10_000_000) == b"0" * 10_000_000


def test_a_process_within_bounds_ends_with_its_input(tmp_path, monkeypatch):
  (tmp_path / "misbehaving.py").write_text(MISBEHAVING)
  monkeypatch.syspath_prepend(tmp_path)
  process = BoundedProcess("misbehaving", seconds=1)
  process(b"moss")
  child = process._process
  assert child is not None and child.stdin is not None
  child.stdin.close()
  end = time.monotonic() + 20
  while child.poll() is None and time.monotonic() < end:
    time.sleep(0.05)
  assert child.returncode == 0
