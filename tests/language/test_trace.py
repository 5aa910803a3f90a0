"""The trace: its table, its summary, its files, its texts and what it refuses."""

import math

import pandas
import pytest
import torch

from tests.language.cases import WORDS, Words, make_record, make_trace
from torch_boc.functional.tokens import TOKEN_COLUMNS
from torch_boc.language import TokenRecord, Trace


def test_the_table_has_a_row_for_each_token():
    trace = make_trace(7, 5, prompt=2)
    table = trace.to_frame()
    assert list(table) == ["sequence", "position", "is_prompt", "token", "text", *TOKEN_COLUMNS]
    assert table["sequence"].tolist() == [0] * 7 + [1] * 5
    assert table["is_prompt"].sum() == 4
    assert table["text"].tolist() == [WORDS[token % len(WORDS)] for token in table["token"]]
    torch.testing.assert_close(torch.tensor(table["entropy"][7:].values)[1:], trace.records[1].numbers["entropy"][1:])


def test_the_summary_is_of_what_was_generated():
    record = make_record(20, prompt=8)
    row = Trace([record], num_classes=50).summary().iloc[0]
    chances = record.numbers["log_probability"][8:]
    assert (row["tokens"], row["prompt_tokens"], row["finish"]) == (12, 8, "eos")
    assert row["perplexity"] == pytest.approx(math.exp(-chances.mean()))
    assert row["median_lost_coins"] == pytest.approx(record.numbers["lost_coins"][8:].quantile(0.5).item())
    place = 8 + int(chances.argmin())
    assert (row["lowest_position"], row["lowest_text"]) == (place, f"[{record.tokens[place]}]")
    assert Trace([make_record(6, prompt=6)], num_classes=50).summary()["tokens"].tolist() == [6]
    unlikely = Trace([make_record(3, scale=5000.0)], num_classes=50).summary()["perplexity"]
    assert 1e300 < unlikely[0] < math.inf  # the exponential of more is no number


def test_without_numbers_and_without_tokens():
    empty = TokenRecord(torch.empty(0, dtype=torch.int64), {}, torch.empty(0, 5).long(), torch.empty(0, 5))
    row = Trace([empty], num_classes=50).summary().iloc[0]
    assert (row["tokens"], row["lowest_position"], row["lowest_text"]) == (0, -1, "")
    nothing = Trace([], num_classes=50)
    assert (len(nothing), len(nothing.to_frame()), len(nothing.summary())) == (0, 0, 0)
    for trace in (nothing, Trace([empty], num_classes=50)):
        assert "<h1>" in trace.html()


def test_texts_and_single_sequences():
    trace = make_trace(7, 5, 3)
    assert [one.text() for one in trace] == [trace.text(i) for i in range(3)]
    assert (trace[-1].records, trace[1:].records) == (trace.records[2:], trace.records[1:])
    short = make_trace(6, prompt=2)
    assert short.text(prompt=False) == Words().decode(short.records[0].tokens[2:])
    assert repr(make_trace(1200, 5, prompt=2)) == "<Trace: 2 sequences, 1,205 tokens, 4 of them prompt, 50 classes>"


def test_a_file_has_the_table_and_the_likeliest_tokens(tmp_path):
    trace = make_trace(30, 4, prompt=3)
    assert trace.to_parquet(tmp_path / "folder" / "trace.parquet") == tmp_path / "folder" / "trace.parquet"
    table = pandas.read_parquet(tmp_path / "folder" / "trace.parquet")
    frame = trace.to_frame()
    assert table[list(frame)].equals(frame)
    assert [list(row) for row in table["rivals"]] == [row for x in trace.records for row in x.rivals.tolist()]


def test_files_that_are_refused(tmp_path):
    (tmp_path / "page.html").write_text("older")
    with pytest.raises(ValueError, match=r"expected a quantity among lost_coins, confidence, .*, got 'beauty'"):
        make_trace(3).save(tmp_path / "page.html", "beauty")
    assert (tmp_path / "page.html").read_text() == "older"

    with pytest.raises(ValueError, match="at least 2"):
        Trace([], num_classes=1)
