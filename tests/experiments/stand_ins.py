"""Small models and data sets in the files and layouts of the real ones."""

import csv
import struct
from contextlib import redirect_stderr
from io import StringIO

import numpy as np
import torch
from scipy.io import savemat

from torch_boc.experiments.protocol import AG_NEWS
from torch_boc.experiments.resnet import CifarResNet

WORDS = ("minister treaty", "striker medal", "merger profit", "galaxy chip")
TRAIN, TEST, OOD = 200, 40, 30


def pictures(count, seed):
    """Noise (N, 32, 32, 3) over a colour that tells the class, and the classes."""
    numbers = np.random.default_rng(seed)
    labels = np.arange(count) % 10
    shown = np.where(np.arange(count) % 6 == 5, (labels + 3) % 10, labels)  # one in six looks like another class
    colours = np.stack([shown * 25, 250 - shown * 25, (shown * 70) % 256], 1)[:, None, None, :]
    return np.clip(colours + numbers.integers(-40, 40, (count, 32, 32, 3)), 0, 255).astype(np.uint8), labels


def python2_batch(pixels, labels):
    """A batch of CIFAR-10 as Python 2 pickled it: byte strings, and an array by the names of NumPy 1."""
    rows = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    shape = b"(" + number(rows.shape[0]) + number(rows.shape[1]) + b"t"
    dtype = (
        b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN" + number(-1) * 2 + b"K\x00tb"
    )
    bare = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    data = b"T" + struct.pack("<i", rows.size) + rows.tobytes()
    array = bare + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"
    listed = b"](" + b"".join(number(int(label)) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + text(b"batch_label") + text(b"x") + b"u."


def write_images(folder):
    """CIFAR-10 and SVHN as published; returns the pixels and labels of each set."""
    (folder / "cifar-10-batches-py").mkdir(parents=True)
    sets = {name: pictures(n, i) for i, (name, n) in enumerate((("train", TRAIN), ("test", TEST), ("svhn", OOD)))}
    pixels, labels = sets["train"]
    for i in range(5):
        part = slice(i * TRAIN // 5, (i + 1) * TRAIN // 5)
        path = folder / "cifar-10-batches-py" / f"data_batch_{i + 1}"
        path.write_bytes(python2_batch(pixels[part], labels[part]))
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(python2_batch(*sets["test"]))
    digits, names = sets["svhn"]
    ten = np.where(names == 0, 10, names).astype(np.uint8)[:, None]
    savemat(folder / "test_32x32.mat", {"X": digits.transpose(1, 2, 3, 0), "y": ten})
    return sets


def headlines(count):
    """Rows of class from 1, title and text; one in six is about another class."""
    topics = [WORDS[(i + (i % 6 == 5)) % 4] for i in range(count)]
    return [(i % 4 + 1, f"The {topic}, {i}", f"what it means \\n {i}") for i, topic in enumerate(topics)]


def write_csv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def write_texts(folder):
    """AG News and DBPedia-14 as published."""
    write_csv(folder / "ag_news_csv" / "train.csv", headlines(TRAIN))
    write_csv(folder / "ag_news_csv" / "test.csv", headlines(TRAIN + TEST)[TRAIN:])
    write_csv(folder / "dbpedia_csv" / "test.csv", [(i % 14 + 1, f"T{i}", f" T{i} is a village.") for i in range(OOD)])


def spread(model):
    """A model whose logits differ from sample to sample, as those of trained ones do."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 2 / parameter[0].numel() ** 0.5)
    return model.eval()


def teach(model, head, labels, **inputs):
    """Fit the head to the labels by least squares, so that the model knows something."""
    features = []
    handle = head.register_forward_pre_hook(lambda module, args: features.append(args[0]))
    with torch.no_grad(), handle:
        model(**inputs)
        x = torch.cat([features[0], torch.ones(len(labels), 1)], 1).double()
        wanted = 4.0 * torch.eye(head.out_features, dtype=torch.float64)[labels % head.out_features]
        solution = torch.linalg.solve(x.T @ x + 0.1 * torch.eye(x.shape[1]), x.T @ wanted).T
        head.weight.copy_(solution[:, :-1])
        head.bias.copy_(solution[:, -1])


def write_resnet(path, **options):
    """Weights in the layout of chenyaofo/pytorch-cifar-models."""
    model = spread(CifarResNet(**options))
    pixels, labels = pictures(TRAIN, 0)
    x = torch.from_numpy(pixels).movedim(-1, 1) / 255 - 0.5
    teach(model, model.get_submodule(model.head), torch.from_numpy(labels), x=4 * x)
    torch.save(model.state_dict(), path)
    return model


def write_vit(folder, classes=10, **options):
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = ViTConfig(**size, image_size=48, patch_size=16, num_labels=classes, **options)
    model, processor = spread(ViTForImageClassification(config)), ViTImageProcessor(size={"height": 48, "width": 48})
    pixels, labels = pictures(TRAIN, 0)
    teach(model, model.classifier, torch.from_numpy(labels), **processor(list(pixels), return_tensors="pt"))
    with redirect_stderr(StringIO()):  # its progress bar
        model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


def write_roberta(folder, names=None):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    texts = [f"{title} {text}" for _, title, text in headlines(50)]
    learner = trainers.BpeTrainer(vocab_size=300, special_tokens=list(special.values()), show_progress=False)
    bpe.train_from_iterator(texts, learner)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    tokenizer.save_pretrained(folder)
    labels = dict(enumerate(names)) if names else {i: f"LABEL_{i}" for i in range(len(AG_NEWS))}
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = RobertaConfig(vocab_size=300, max_position_embeddings=34, id2label=labels, **size)
    model, rows = spread(RobertaForSequenceClassification(config)), headlines(TRAIN)
    prepared = tokenizer([f"{title} {text}" for _, title, text in rows], padding=True, return_tensors="pt")
    inputs = {name: prepared[name] for name in ("input_ids", "attention_mask")}
    teach(model, model.classifier.out_proj, torch.tensor([label - 1 for label, *_ in rows]), **inputs)
    with redirect_stderr(StringIO()):
        model.save_pretrained(folder)
    return model
