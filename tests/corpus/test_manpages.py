from specdec_jax.corpus.manpages import align, sections

ENGLISH = r""".\" A comment.
.TH LS 1
.SH NAME
ls \- list files
.SH "SEE ALSO"
The manual
.BR printf (3)
says \fBmore\fP
.IR "about it" .
.PP
Second \(lqblock\(rq.
.nf
  verbatim
.fi
.TP
.B \-a
show all
.SH NOTES
One.

Two.
"""
GERMAN = r""".TH LS 1
.SH BEZEICHNUNG
ls \- Dateien auflisten
.SH "SIEHE AUCH"
Das Handbuch
.BR printf (3)
sagt \fBmehr\fP
.IR darüber .
.PP
Zweiter \(BqBlock\(lq.
.TP
.B \-a
alle zeigen
.SH ANMERKUNGEN
Eins.
.SH ÜBERSETZUNG
Von uns.
"""


def test_a_page_is_read_as_blocks_of_sections():
    assert sections(ENGLISH) == [
        [],
        ["NAME", "ls - list files"],
        [
            "SEE ALSO",
            "The manual printf(3) says more about it.",
            'Second "block".',
            "-a show all",
        ],
        ["NOTES", "One.", "Two."],
    ]


def test_sections_with_as_many_blocks_align_and_others_do_not():
    assert align(ENGLISH, GERMAN) == [
        ("NAME", "BEZEICHNUNG"),
        ("ls - list files", "ls - Dateien auflisten"),
        ("SEE ALSO", "SIEHE AUCH"),
        (
            "The manual printf(3) says more about it.",
            "Das Handbuch printf(3) sagt mehr darüber.",
        ),
        ('Second "block".', 'Zweiter "Block".'),
        ("-a show all", "-a alle zeigen"),
    ]


def test_escapes_print_as_characters_or_not_at_all():
    text = r"a\fIb\f[B]c\f(CWd \-x\&. it\(aqs 3\(en4 C:\eprogram \s-1SMALL\s0\ \*(Tm"
    assert sections(text) == [[r"abcd -x. it's 3-4 C:\program SMALL"]]
