"""Check 2: work on one card leaves the other cards alone."""

import torch

from ..functional import bag_of_coins, log_p_value
from ..metrics import BoCMetric
from .cases import make_logits, make_target, need_cuda, other_cards
from .children import in_processes
from .outcomes import Finding, SkippedError, check

STEPS = ("torch's own operations", "torch_boc")


@check("other cards", "the probe on one card opens no context on the others and takes none of their memory")
def untouched(device: torch.device) -> Finding:
    """A new process computes on the last card, while card 0 is torch's current device."""
    need_cuda(device, "a CPU has no second card")
    if not other_cards(device):
        raise SkippedError("needs a second card, and there is one only")
    (seen,) = in_processes(use_one_card, 1, torch.cuda.device_count() - 1)
    return judge(*seen)


def use_one_card(rank: int, folder: str, index: int) -> list[list[int]]:
    """Which cards besides `index` are in use after torch's own operations on that card, and after ours."""
    device = torch.device("cuda", index)
    make_logits(64, 10, device=device).requires_grad_().softmax(-1).square().sum().backward()
    before = touched(device)
    logits = make_logits(64, 10, device=device).requires_grad_()
    coins = bag_of_coins(logits)
    (coins.gap.sum() + log_p_value(coins).sum()).backward()
    metric = BoCMetric(num_classes=10).to(device)
    metric.update(logits, make_target(64, 10, device))
    metric.compute()
    return [before, touched(device)]


def touched(device: torch.device) -> list[int]:
    """The other cards on which this process has a context or memory."""
    cards = [card.index for card in other_cards(device)]
    has_context = torch._C._cuda_hasPrimaryContext
    return [i for i in cards if has_context(i) or torch.cuda.memory_reserved(i)]


def judge(before: list[int], after: list[int]) -> Finding:
    """Whether we touched a card that torch had left alone."""
    ours = sorted(set(after) - set(before))
    note = f"torch's own operations had opened a context on cards {before}, which were not compared" if before else ""
    found = f"it touched the cards {ours}" if ours else "it touched no other card"
    return Finding(not ours, found, note, dict(zip(STEPS, (before, after), strict=True)))
