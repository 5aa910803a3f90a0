"""Small models and data sets in the files and layouts of the real ones."""

import csv
import struct

import numpy as np
import torch
from scipy.io import savemat

from benchmarks.paper.models import CifarResNet
from benchmarks.paper.protocol import AG_NEWS

TRAIN, TEST, OOD = 200, 40, 30
SIZE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


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
    """CIFAR-10 and SVHN as published."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    pixels, labels = pictures(TRAIN, 0)
    for i in range(5):
        part = slice(i * TRAIN // 5, (i + 1) * TRAIN // 5)
        (batches / f"data_batch_{i + 1}").write_bytes(python2_batch(pixels[part], labels[part]))
    (batches / "test_batch").write_bytes(python2_batch(*pictures(TEST, 1)))
    digits, names = pictures(OOD, 2)
    ten = np.where(names == 0, 10, names).astype(np.uint8)[:, None]
    savemat(folder / "test_32x32.mat", {"X": digits.transpose(1, 2, 3, 0), "y": ten})


def headlines(count):
    """Rows of class from 1, title and text."""
    words = ("minister treaty", "striker medal", "merger profit", "galaxy chip")
    return [(i % 4 + 1, f"The {words[i % 4]}, {i}", f"what it means {i}") for i in range(count)]


def write_texts(folder):
    """AG News and DBPedia-14 as published."""
    files = {
        "ag_news_csv/train.csv": headlines(TRAIN),
        "ag_news_csv/test.csv": headlines(TRAIN + TEST)[TRAIN:],
        "dbpedia_csv/test.csv": [(i % 14 + 1, f"T{i}", f" T{i} is a village.") for i in range(OOD)],
    }
    for name, rows in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


def spread(model):
    """A model whose logits differ from sample to sample, as those of trained ones do."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 2 / parameter[0].numel() ** 0.5)
    return model.eval()


def write_resnet(path):
    """Weights in the layout of chenyaofo/pytorch-cifar-models."""
    torch.save(spread(CifarResNet()).state_dict(), path)


def write_vit(folder):
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    spread(ViTForImageClassification(ViTConfig(**SIZE, image_size=48, num_labels=10))).save_pretrained(folder)
    ViTImageProcessor(size={"height": 48, "width": 48}).save_pretrained(folder)


def write_roberta(folder, names=AG_NEWS):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForSequenceClassification

    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel()
    learner = trainers.BpeTrainer(vocab_size=300, special_tokens=list(special.values()), show_progress=False)
    bpe.train_from_iterator([f"{title} {text}" for _, title, text in headlines(50)], learner)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    PreTrainedTokenizerFast(tokenizer_object=bpe, **special).save_pretrained(folder)
    config = RobertaConfig(vocab_size=300, max_position_embeddings=34, id2label=dict(enumerate(names)), **SIZE)
    spread(RobertaForSequenceClassification(config)).save_pretrained(folder)
