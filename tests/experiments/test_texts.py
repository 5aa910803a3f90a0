"""AG News and DBPedia-14 from .csv files, folders of `datasets` and the hub."""

import json
import sys
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests.experiments import stand_ins
from torch_boc.experiments.texts import fetch_texts, read_texts


def test_published_layouts(text_folder):
    """Title and text of AG News with a space between, the abstract alone of DBPedia, classes from 0."""
    texts, labels = read_texts(text_folder, "ag_news_train")
    assert (texts[5], labels[5]) == ("The merger profit, 5 what it means \\n 5", 1)
    assert (len(texts), labels.tolist()) == (stand_ins.TRAIN, [i % 4 for i in range(stand_ins.TRAIN)])
    assert len(read_texts(text_folder, "ag_news_test")[0]) == stand_ins.TEST
    texts, labels = read_texts(text_folder, "dbpedia_test")
    assert (texts[3], labels[3]) == (" T3 is a village.", 3)


def test_a_flat_folder_with_headers_and_empty_titles(tmp_path):
    stand_ins.write_csv(tmp_path / "test.csv", [("Class Index", "Title", "Description"), (2, "", 'a "b", c\nd')])
    stand_ins.write_csv(tmp_path / "dbpedia.csv", [(14, "", "x")])
    texts, labels = read_texts(tmp_path, "ag_news_test")
    assert (texts, labels.tolist()) == (['a "b", c\nd'], [1])
    assert read_texts(tmp_path, "dbpedia_test")[0] == ["x"]


def save_to_disk(folder, columns, files=2):
    """The files that `datasets` writes."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{files:05}.arrow" for i in range(files)]
    for i, name in enumerate(names):
        table = pa.table({key: values[i::files] for key, values in columns.items()})
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def test_folders_of_datasets(tmp_path):
    save_to_disk(tmp_path / "ag_news" / "test", {"text": ["a", "b", "c"], "label": [0, 1, 3]})
    save_to_disk(tmp_path / "dbpedia_14" / "test", {"label": [13, 0], "title": ["t", "u"], "content": [" d", " e"]}, 1)
    texts, labels = read_texts(tmp_path, "ag_news_test")
    assert (texts, labels.tolist()) == (["a", "c", "b"], [0, 3, 1])
    assert read_texts(tmp_path, "dbpedia_test")[0] == [" d", " e"]


def test_wrong_folders_of_datasets(tmp_path):
    save_to_disk(tmp_path / "ag_news" / "test", {"sentence": ["a"], "label": [0]}, 1)
    with pytest.raises(ValueError, match=r"expected the columns label and text or content, got sentence, label"):
        read_texts(tmp_path, "ag_news_test")
    (tmp_path / "ag_news" / "test" / "state.json").write_text("{}")
    with pytest.raises(ValueError, match=r"test: expected a data set of save_to_disk, got KeyError"):
        read_texts(tmp_path, "ag_news_test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'"1","a","b"\n"2","a"\n', r"expected class, title, text in each row, got \['2', 'a'\] in row 2"),
        (b'"1","a","b"\n"x","a","b"\n', r"got \['x', 'a', 'b'\] in row 2"),
        (b'"1","a","\xff\xfe"\n', r"expected a .csv file in UTF-8, got 'utf-8' codec"),
    ],
)
def test_wrong_csv_files(tmp_path, content, message):
    (tmp_path / "test.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_texts(tmp_path, "ag_news_test")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected dbpedia_csv/test\.csv or .* dbpedia_14/test/state\.json"):
        read_texts(tmp_path, "dbpedia_test")


class Table(dict):
    """As much of a data set of the hub as is used."""

    column_names = property(list)


@pytest.fixture
def hub(monkeypatch):
    """A library `datasets` that knows one set, and a hub that can be reached."""
    asked = []

    def load_dataset(name, split):
        asked.append((name, split))
        return Table(text=["a  b", ' "c"\r\nd,'], label=[3, 0])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda *args, **kwargs: None)
    return asked


def test_the_hub_is_asked_once(tmp_path, hub):
    first = fetch_texts(tmp_path, "ag_news_test", "")
    again = fetch_texts(tmp_path, "ag_news_test", "")
    assert hub == [("fancyzhx/ag_news", "test")]
    assert first[0] == again[0] == ["a  b", ' "c"\r\nd,']
    assert first[1].tolist() == again[1].tolist() == [3, 0]


def test_offline(tmp_path, offline, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace())
    with pytest.raises(ConnectionError, match=r"could not fetch fancyzhx/dbpedia_14 from the .* not known\); connect"):
        fetch_texts(tmp_path, "dbpedia_test", "--data-dir FOLDER")


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install datasets, or give --data-dir"):
        fetch_texts(tmp_path, "ag_news_test", "")
