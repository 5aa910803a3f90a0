"""Small models and datasets in the files and layouts of the real ones, and a server instead of their hubs."""

import hashlib
import json
import struct
import tarfile
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from scipy.io import savemat

from benchmarks.paper.models import CifarResNet

TRAIN, TEST, OOD = 400, 150, 120
SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def pictures(count, seed):
    """Noise (N, 32, 32, 3) over a colour that tells the class, and the classes."""
    labels = np.arange(count) % 10
    colours = np.stack([labels * 25, 250 - labels * 25, (labels * 70) % 256], 1)[:, None, None, :]
    noise = np.random.default_rng(seed).integers(-40, 40, (count, 32, 32, 3))
    return np.clip(colours + noise, 0, 255).astype(np.uint8), labels


def python2_batch(pixels, labels):
    """A batch of CIFAR-10 as Python 2 pickled it: byte strings, and an array by the names of NumPy 1."""
    rows = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    shape = b"(" + number(rows.shape[0]) + number(rows.shape[1]) + b"t"
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|")
    dtype += b"NNN" + number(-1) * 2 + b"K\x00tb"
    bare = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    data = b"T" + struct.pack("<i", rows.size) + rows.tobytes()
    array = bare + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"
    listed = b"](" + b"".join(number(int(label)) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def write_images(folder):
    """CIFAR-10 and SVHN as published: an archive and a .mat file."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    pixels, labels = pictures(TRAIN, 0)
    for i in range(5):
        part = slice(i * TRAIN // 5, (i + 1) * TRAIN // 5)
        (batches / f"data_batch_{i + 1}").write_bytes(python2_batch(pixels[part], labels[part]))
    (batches / "test_batch").write_bytes(python2_batch(*pictures(TEST, 1)))
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.add(batches, batches.name)
    digits, names = pictures(OOD, 2)
    ten = np.where(names == 0, 10, names).astype(np.uint8)[:, None]
    savemat(folder / "test_32x32.mat", {"X": digits.transpose(1, 2, 3, 0), "y": ten})


def write_texts(folder):
    """AG News and DBPedia-14 as `hf download` writes them; a text has one word more than the one before."""
    words = ("minister treaty", "striker medal", "merger profit", "galaxy chip")
    for name, first, count in (("train", 0, TRAIN), ("test", TRAIN, TEST)):
        texts = [f"The {words[i % 4]}, {i}" + " and more" * (i % 9) for i in range(first, first + count)]
        table = pa.table({"text": texts, "label": [i % 4 for i in range(first, first + count)]})
        (folder / "ag_news/data").mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / f"ag_news/data/{name}-00000-of-00001.parquet")
    places = [f" T{i} is a village." for i in range(OOD)]
    table = pa.table({"label": [i % 14 for i in range(OOD)], "title": [f"T{i}" for i in range(OOD)], "content": places})
    (folder / "dbpedia_14/dbpedia_14").mkdir(parents=True)
    pq.write_table(table, folder / "dbpedia_14/dbpedia_14/test-00000-of-00001.parquet")


def spread(model):
    """A model whose logits differ from sample to sample, as those of trained ones do."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 2 / parameter[0].numel() ** 0.5)
    return model.eval()


def write_resnet(folder):
    """Weights in the layout of chenyaofo/pytorch-cifar-models; the name has the beginning of their SHA-256."""
    torch.save(spread(CifarResNet()).state_dict(), folder / "weights")
    digest = hashlib.sha256((folder / "weights").read_bytes()).hexdigest()[:8]
    return (folder / "weights").rename(folder / f"cifar10_resnet20-{digest}.pt")


def as_bin(folder, **more):
    """The weights as only pytorch_model.bin, with the names of old versions of transformers."""
    torch.save(load_file(folder / "model.safetensors") | more, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    (folder / "README.md").write_text("not fetched")


def write_vit(folder):
    """A folder as that of the real checkpoint: old settings of the images, and weights as .bin."""
    from transformers import ViTConfig, ViTForImageClassification

    spread(ViTForImageClassification(ViTConfig(**SIZE, image_size=48, num_labels=10))).save_pretrained(folder)
    settings = {"do_normalize": True, "do_resize": True, "feature_extractor_type": "ViTFeatureExtractor"}
    settings |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2, "size": 48}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    as_bin(folder)


def write_roberta(folder, names=None):
    """A folder as that of the real checkpoint: vocab.json and merges.txt, no tokenizer.json, and a buffer of old."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForSequenceClassification

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(["The minister treaty medal chip and more"] * 9, 300, special_tokens=special)
    named = {} if names is None else {"id2label": dict(enumerate(names))}
    config = RobertaConfig(vocab_size=300, max_position_embeddings=34, num_labels=4, **named, **SIZE)
    spread(RobertaForSequenceClassification(config)).save_pretrained(folder)
    bpe.save_model(str(folder))
    as_bin(folder, **{"roberta.embeddings.position_ids": torch.arange(34)[None]})


class Hub(BaseHTTPRequestHandler):
    """Answers as the Hugging Face hub does for folders of models and datasets, and with files below /files."""

    folders, files, asked = {}, None, []

    def do_HEAD(self):
        self.do_GET()

    def log_message(self, *args):
        """Nothing."""

    def do_GET(self):
        path = self.path.split("?")[0]
        self.asked.append(path)
        kind = next((name for name in self.folders if f"{name}/" in f"{path}/"), None)
        if path.startswith("/files/"):
            self._send((self.files / path[7:]).read_bytes(), "application/octet-stream")
        elif kind is None:
            self._send(b"{}", "application/json", status=404, **{"X-Error-Code": "RepoNotFound"})
        elif path.startswith("/api/"):
            folder = self.folders[kind]
            named = {str(x.relative_to(folder)): x.stat().st_size for x in folder.rglob("*") if x.is_file()}
            if "/tree/" in path:
                content = [{"type": "file", "path": x, "size": n, "oid": x} for x, n in named.items()]
            else:
                listed = [{"rfilename": x, "size": n} for x, n in named.items()]
                content = {"id": kind, "sha": COMMIT, "siblings": listed}
            self._send(json.dumps(content).encode(), "application/json")
        else:
            file = self.folders[kind] / path.split(f"/resolve/{COMMIT}/")[-1].split("/resolve/main/")[-1]
            etag = hashlib.md5(path.encode()).hexdigest()
            self._send(file.read_bytes(), "text/plain", **{"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def _send(self, content, kind, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)


@contextmanager
def serving(folders, files):
    """A hub with `folders` by name, and `files`; gives its address."""
    Hub.folders, Hub.files, Hub.asked = folders, files, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
