"""Mail, pages and office files as programs write them: encodings, attachments, edges of pages."""

import email.message

import pytest

from tests.corpus.document_files_test import document, docx, paragraph, pdf, records, xml, zipped


def mail(headers, body=b""):
  return headers + b"\n\n" + body


PLAIN = b"Subject: x\nContent-Transfer-Encoding: 8bit\nContent-Type: text/plain"
PAGE = b"Subject: x\nContent-Transfer-Encoding: 8bit\nContent-Type: text/html; charset=%s"
META = b'<head><meta charset="%s"></head>'


@pytest.mark.parametrize(
  ("content", "text"),
  [
    (mail(PLAIN + b"; charset=iso-8859-1", "Schöne „Grüße“".encode("cp1252")), "Schöne „Grüße“"),
    (mail(PLAIN, "Schöne Grüße".encode("latin-1")), "Schöne Grüße"),
    (mail(PLAIN, "Schöne Grüße".encode()), "Schöne Grüße"),
    (mail(PLAIN + b"; charset=utf-9", "Schöne Grüße".encode()), "Schöne Grüße"),
    (mail(PLAIN + b"; charset=gb2312", "朱镕基".encode("gbk")), "朱镕基"),
    (mail(PAGE % b"iso-8859-2", "<p>Łódź</p>".encode("iso-8859-2")), "Łódź"),
    (mail(PAGE % b"utf-8", META % b"windows-1252" + "<p>Łódź</p>".encode()), "Łódź"),
  ],
)
def test_mail_is_in_the_encoding_that_it_says_or_has(tmp_path, content, text):
  assert document(tmp_path / "x.eml", content).text == text


@pytest.mark.parametrize(
  ("content", "text"),
  [
    (META % b"shift_jis" + "<p>こころ①</p>".encode("cp932"), "こころ①"),
    (META % b"gb2312" + "<p>朱镕基</p>".encode("gbk"), "朱镕基"),
    (META % b"iso-8859-1" + "<p>“x” €</p>".encode("cp1252"), "“x” €"),
    (META % b"utf-16" + "<p>Café</p>".encode(), "Café"),
    (META % b"utf-7" + b"<p>1+1</p>", "1+1"),
    (META % b"x-none" + "<p>Café</p>".encode("cp1252"), "Café"),
    ("<p>こころ</p>".encode("utf-16"), "こころ"),
  ],
)
def test_a_page_is_in_the_encoding_that_a_browser_would_take(tmp_path, content, text):
  assert document(tmp_path / "x.html", content).text == text


def test_headers_of_mail_may_be_bytes_and_no_addresses(tmp_path):
  headers = 'Subject: Grüße\nFrom: Jürgen <j@x.de>\nTo: a@b, <, "x\nDate: yesterday'
  for encoding in ("utf-8", "cp1252"):
    found = document(tmp_path / "x.eml", mail(headers.encode(encoding), b"Text."))
    assert found.title == "Grüße" and found.text.startswith("From: Jürgen <j@x.de>")
  koi8 = PLAIN.replace(b"Subject: x", "Subject: Привет".encode("koi8-r")) + b"; charset=koi8-r"
  found = document(tmp_path / "x.eml", mail(koi8, "Мир".encode("koi8-r")))
  assert (found.title, found.text) == ("Привет", "Мир")


def attached(**files):
  message = email.message.EmailMessage()
  message["Subject"], message["From"] = "Report", "a@b.c"
  message.set_content("See below.")
  for name, content in files.items():
    kind = {"maintype": "application", "subtype": "octet-stream"}
    message.add_attachment(content, filename=name.replace("__", "."), **kind)
  return message


def test_what_is_attached_to_mail_is_read_under_its_name(tmp_path):
  inner = attached(deep__docx=docx(paragraph("Oaks are tall.")))
  message = attached(
    margin__docx=docx(paragraph("Flutter has a margin.")),
    page__pdf=pdf([(12, "Rivers are long.")]),
    scan__png=b"\x89PNG",
    old__doc=b"\xd0\xcf\x11\xe0",
    notes__zip=zipped(a="b"),
  )
  message.add_attachment("a,b\n1,2\n", subtype="csv", filename="rows.csv")
  message.add_attachment(inner)
  found = document(tmp_path / "x.eml", message.as_bytes())
  for text in ("Flutter has a margin.", "Rivers are long.", "a,b\n1,2", "Oaks are tall."):
    assert text in found.text
  headings = {mark.heading for mark in found.outline}
  assert {"Attached: margin.docx", "Attached: page.pdf", "Attached: deep.docx"} <= headings
  assert not any(mark.page for mark in found.outline), "mail has no pages"
  assert "Attached: scan.png\n" in found.text
  assert "Attached: old.doc (not read: a file of Office before 2007" in found.text
  assert "Attached: notes.zip (not read: it is a ZIP archive; unpack it)" in found.text


def test_what_is_attached_is_read_however_deep_parts_are_nested(tmp_path):
  signed = mail(b"Subject: x\nContent-Type: multipart/signed; boundary=B", b"--B\n")
  signed += attached(notes__txt=docx(paragraph("Elms are old."))).as_bytes() + b"\n--B--\n"
  text = document(tmp_path / "signed.eml", signed).text
  assert "See below." in text and "Attached: notes.txt\n\nElms are old." in text
  forms = email.message.EmailMessage()
  forms["From"] = "a@b.c"
  forms.set_content("See below.")
  forms.add_alternative("<p>See <b>below</b>.</p>", subtype="html")
  (_, rich) = forms.iter_parts()
  rich.add_attachment(b"1,2", maintype="text", subtype="csv", filename="rows.csv")
  text = document(tmp_path / "forms.eml", forms.as_bytes()).text
  assert text.split() == "From: a@b.c See below. Attached: rows.csv 1,2".split()


def test_what_xhtml_closes_at_once_hides_nothing_after_it(tmp_path):
  page = b'<p>One</p><script src="a.js"/><svg width="1"/><p>Two</p><script>a/></script><p>Three</p>'
  assert document(tmp_path / "x.xhtml", page).text == "One\n\nTwo\n\nThree"


def test_mail_in_mail_and_long_attachments_end(tmp_path):
  message = attached()
  for _ in range(40):
    outer = attached()
    outer.add_attachment(message)
    message = outer
  assert document(tmp_path / "x.eml", message.as_bytes()).text.count("See below.") == 6
  long = attached()
  for number in range(12):
    long.add_attachment("word " * 200_000, filename=f"{number}.txt")
  assert document(tmp_path / "x.eml", long.as_bytes()).text.endswith("because it is too long.")


def test_what_stands_above_and_below_pages_is_read_once(tmp_path):
  edges = {
    f"word__{name}.xml": xml(paragraph(text))
    for name, text in (("header1", "Acme Ltd"), ("header2", "Acme Ltd"), ("footer1", "Ref 4711"))
  }
  found = document(tmp_path / "x.docx", docx(paragraph("Dear Sir."), **edges))
  assert found.text == "Dear Sir.\n\nRef 4711\n\nAcme Ltd"
  body = "<w:body><w:text><w:p>Dear Sir.</w:p></w:text></w:body>"
  page = "<w:header><w:p>Acme</w:p></w:header><w:footer><w:p>4711</w:p></w:footer>"
  odt = zipped(**{"content.xml": xml(body), "styles.xml": xml(f"<w:m>{page}</w:m>")})
  assert document(tmp_path / "x.odt", odt).text == "Dear Sir.\n\nAcme\n\n4711"


def test_entities_are_refused_in_every_encoding(tmp_path):
  text = '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x [<!ENTITY a "b">]><x><p>&a;</p></x>'
  content = zipped(**{"word__document.xml": text.encode("utf-16")})
  (found,) = records(tmp_path / "x.docx", content)
  assert found.reason == "it declares entities, which may multiply"


def test_a_sheet_costs_what_it_has_and_not_what_is_formatted(tmp_path):
  cell = '<c r="A1" t="inlineStr"><is><t>Moss</t></is></c>'
  empty = "".join(
    f'<row r="{n}"><c r="A{n}" s="5"/><c r="B{n}" s="5"/></row>' for n in range(99_999)
  )
  sheet = f"<w><sheetData><row>{cell}<c/>{cell}</row>{empty}<row>{cell}</row></sheetData></w>"
  book = '<w xmlns:r="r"><sheets><sheet name="S" r:id="i"/></sheets></w>'
  targets = '<w><Relationship Id="i" Target="s.xml"/></w>'
  parts = {"xl__workbook.xml": book, "xl___rels__workbook.xml.rels": targets, "xl__s.xml": sheet}
  assert document(tmp_path / "x.xlsx", zipped(**parts)).text == "S\n\nMoss Moss\nMoss"
