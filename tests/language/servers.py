"""What servers return for given logits and emitted tokens, in their formats."""

from types import SimpleNamespace

from torch_boc.language.responses import UNLIKELY


def name(token):
    return f" w{token}"


def entry(token, logprob, text=None):
    text = name(token) if text is None else text
    return {"token": text, "logprob": max(logprob, UNLIKELY), "bytes": list(text.encode())}


def rows(logits, tokens, k):
    """For each place: the emitted token, its log-probability, and the k likeliest as pairs."""
    for values, token in zip(logits.double().log_softmax(-1), tokens.tolist(), strict=True):
        best, places = values.topk(k)
        yield token, values[token].item(), list(zip(places.tolist(), best.tolist(), strict=True))


def choices(logprobs, text=""):
    message = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", "index": 0}
    return {"object": "chat.completion", "choices": [{**message, "logprobs": logprobs}]}


def openai_chat(logits, tokens, k):
    """The true k likeliest; the emitted token stands beside them."""
    content = []
    for token, chance, best in rows(logits, tokens, k):
        content.append({**entry(token, chance), "top_logprobs": [entry(*pair) for pair in best]})
    return choices({"content": content})


def vllm_pairs(token, chance, best):
    """The dictionary of vLLM: the emitted token first, then the likeliest without it."""
    return {token: chance, **{other: x for other, x in best if other != token}}


def vllm_chat(logits, tokens, k, ids=False):
    """The first k of vLLM's dictionary, so that the emitted token may have the place of the last.

    With ids, the bytes of the emitted token are those of its text, and those of the list are of "token_id:123".
    """
    content = []
    for token, chance, best in rows(logits, tokens, k):
        pairs = list(vllm_pairs(token, chance, best).items())[:k]
        top = [entry(other, x, f"token_id:{other}" if ids else None) for other, x in pairs]
        own = entry(token, chance)
        content.append({**own, "token": f"token_id:{token}" if ids else own["token"], "top_logprobs": top})
    return choices({"content": content})


def vllm_chat_ids(logits, tokens, k):
    return vllm_chat(logits, tokens, k, ids=True)


def llama_chat(logits, tokens, k):
    """With ids. The text of the emitted token is what was sent: nothing while a character is held back."""
    content = []
    for place, (token, chance, best) in enumerate(rows(logits, tokens, k)):
        sent = "" if place % 2 else f"{name(token)}!"
        top = [{"id": other, **entry(other, x)} for other, x in best]
        content.append({"id": token, **entry(token, chance, sent), "top_logprobs": top})
    return choices({"content": content})


def sglang_chat(logits, tokens, k):
    """By their text, so that the later of two tokens of the same text replaces the earlier."""
    content = []
    for token, chance, best in rows(logits, tokens, k):
        texts = {other: "\ufffd" if other % 3 == 0 else name(other // 2) for other in (token, *(x for x, _ in best))}
        top = {texts[other]: x for other, x in best}
        listed = [entry(None, x, text) for text, x in top.items()]
        content.append({**entry(token, chance, texts[token]), "top_logprobs": listed})
    return choices({"content": content})


def completion(logits, tokens, k):
    """The k likeliest by their text, and the emitted token as one more."""
    found = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
    for token, chance, best in rows(logits, tokens, k):
        found["tokens"].append(name(token))
        found["token_logprobs"].append(chance)
        found["top_logprobs"].append({name(other): x for other, x in vllm_pairs(token, chance, best).items()})
    return {"object": "text_completion", "choices": [{"text": "", "finish_reason": "length", "logprobs": found}]}


def request_output(logits, tokens, k, prompt=0):
    """The own object of vLLM, with ranks."""
    steps = []
    for (token, chance, best), values in zip(rows(logits, tokens, k), logits, strict=True):
        ranks = {other: i for i, (other, _) in enumerate(best, start=1)}
        ranks[token] = 1 + int((values > values[token]).sum())
        pairs = vllm_pairs(token, chance, best).items()
        steps.append({x: SimpleNamespace(logprob=p, rank=ranks[x], decoded_token=name(x)) for x, p in pairs})
    output = SimpleNamespace(token_ids=tokens.tolist()[prompt:], logprobs=steps[prompt:], finish_reason="stop")
    before = [None, *steps[1:prompt]] if prompt else None
    return SimpleNamespace(outputs=[output], prompt_logprobs=before, prompt_token_ids=tokens.tolist()[:prompt])


FORMATS = (openai_chat, vllm_chat, vllm_chat_ids, llama_chat, completion, request_output)
