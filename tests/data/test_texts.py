"""Text files in pieces."""

import pytest

from torch_boc.data.texts import text_pieces


def written(folder, content):
    path = folder / "text.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    "text", ["one\ntwo äöü\n\nthree", "日本語のテキスト\nend\n", "no line end at all", "\n\n\n", "a" * 50]
)
def test_the_pieces_are_the_file(tmp_path, text, size):
    assert "".join(text_pieces(written(tmp_path, text.encode()), size)) == text


def test_pieces_end_at_the_end_of_a_line(tmp_path):
    lines = "".join(f"line {i}\n" for i in range(50))
    pieces = list(text_pieces(written(tmp_path, lines.encode()), 20))
    assert len(pieces) > 10
    assert all(piece.endswith("\n") for piece in pieces)


def test_a_long_line_is_cut_after_a_space(tmp_path):
    pieces = list(text_pieces(written(tmp_path, b"word " * 40), 32))
    assert max(map(len, pieces)) <= 64
    assert all(piece.endswith(" ") for piece in pieces)


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert list(text_pieces(written(tmp_path, b"\xef\xbb\xbfabc"))) == ["abc"]
    assert list(text_pieces(written(tmp_path, b""))) == []


@pytest.mark.parametrize("size", [1, 2, 3, 8, 1000])
@pytest.mark.parametrize(
    ("content", "place"),
    [(b"abc\xffdef", 3), (b"ab\xc3(", 2), (("ä" * 9).encode() + b"x\x80y", 19), (b"text \xe6\x97", 5)],
)
def test_a_wrong_byte_is_named(tmp_path, content, place, size):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=rf"text.txt: expected a text in UTF-8, got .* at byte {place}$"):
        list(text_pieces(path, size))
