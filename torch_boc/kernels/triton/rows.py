"""The one pass over the logits as Triton kernels; `core/row_sums.py` says what is summed, and why it is scaled.

A row that fits on the chip is read once and stays in registers, where a short row gets its coins too. A longer one is
read twice: first for its top, then, from the cache, for its sums; its coins take another kernel, which reads flat and
sharp rows again. This module needs Triton, and is imported when the first kernel is launched.

If a block has more classes than the row, the others are -inf: what they add to the sums is less than the rounding.
"""

# mypy: ignore-errors
# What Triton compiles is not Python: arguments are pointers and blocks, and have no types to write down.

import triton
import triton.language as tl

from .common import (
    DOWN,
    NUMBERS,
    UP,
    aligned,
    along,
    count_of,
    find_top,
    is_inside,
    is_row,
    key_of,
    lead_over,
    load_block,
    log1p,
    odds_and_losses,
    start_of,
    top_of,
)

NARROW = tl.constexpr(128)  # this many classes or fewer: a warp has several rows
# How far the second logit is below the top where all rivals are -inf: a number, whose exp is 0.
FARTHEST = tl.constexpr(-3e38)
LEAST_ROOM = tl.constexpr(4 * 2.0**-52)  # relative to the even sum, of bounds that are equal


@triton.jit
def _every_fourth(begin, real, classes, first: tl.constexpr, width: tl.constexpr):
    """The columns first, first + 4, and so on."""
    column = tl.arange(0, width // 4)[None, :] * 4 + first
    return tl.load(begin + column, mask=real[:, None] & (column < classes), other=-float("inf"))


@triton.jit
def load_rows(begin, real, classes, stride, step, bits: tl.constexpr, width: tl.constexpr):
    """Whole rows.

    If narrow rows cannot be loaded in vectors, a thread loads four neighbouring logits one by one. Left to itself, the
    compiler would give neighbours to different threads, and each sum of a row would take two more exchanges of threads.
    """
    # Triton 3.3 chains no more than two of these without parentheses.
    if ((bits < 2) and (width >= 4)) and ((width <= NARROW) and ((step is None) and (stride is not None))):
        even = tl.join(_every_fourth(begin, real, classes, 0, width), _every_fourth(begin, real, classes, 2, width))
        odd = tl.join(_every_fourth(begin, real, classes, 1, width), _every_fourth(begin, real, classes, 3, width))
        z = tl.reshape(tl.join(even, odd), [even.shape[0], width])
    else:
        column = tl.arange(0, width)[None, :]
        inside = real[:, None] & (column < count_of(classes, stride, bits))
        z = tl.load(begin + along(column, step, bits), mask=inside, other=-float("inf"))
    return z


@triton.jit
def _kinds(odds, real, classes):
    """Which rows are flat, and which are sharp; `core/row_sums.py` says what that is."""
    return real & (odds > (classes - 1) * 0.5), real & (odds < DOWN)


@triton.jit
def _mass_terms(below, second, flat):
    """What each class adds to the masses of its row: by its lead if the row is flat, otherwise relative to `second`."""
    lead = lead_over(below)
    share = tl.where(below < 0.0, tl.exp(tl.minimum(below - second, 0.0)), 0.0)
    square = tl.where(flat, lead / (2.0 - lead) * (lead * UP), share * share)
    return tl.where(flat, lead, share), square


@triton.jit
def _masses(odds, squares, log_odds, flat, sharp, first, other, second, classes):
    """Both masses and the log of the odds: from the sums of `_mass_terms` if the row is flat or sharp, or as given."""
    needed, far = flat | sharp, tl.where(flat, 0.0, second.to(tl.float64))
    first, other, unit = first.to(tl.float64), other.to(tl.float64), tl.exp(far)
    # One rival near the top: its lead, the first sum, has more digits than its odds.
    of_flat = tl.where(classes == 2, log1p(-first), log_odds)
    rest = tl.where(flat, of_flat, tl.where(sharp, far + tl.log(first), log_odds))
    square = tl.where(needed, other * tl.where(flat, DOWN, unit * unit), squares)
    return tl.where(needed, first * unit, odds), square, rest


@triton.jit
def _store_coins(
    odds, squares, total, square, rest, flat, row, real, classes,
    mass, mass_squares, log_odds, loss, concentration, free_gap
):  # fmt: skip
    """Store what follows from the sums of each row where its pointer is not None; `rest` is the log of the odds."""
    others, wide = (classes - 1).to(tl.float64), odds.to(tl.float64)
    if mass is not None:
        tl.store(mass + row, total, mask=real)
    if mass_squares is not None:
        tl.store(mass_squares + row, square, mask=real)
    if log_odds is not None:
        tl.store(log_odds + row, -rest, mask=real)
    if loss is not None:
        # One rival: its loss is 1 - confidence to the last bit of its dtype, so that the gap is 0.
        against = (1.0 + odds.to(loss.dtype.element_ty)).to(tl.float64)
        tl.store(loss + row, tl.where(classes == 2, wide / against, (wide - squares) / others), mask=real)
    lead = flat.to(tl.float64)
    base, sign = 1.0 + lead, 1.0 - 2.0 * lead
    whole = tl.floor(total)
    last = total - whole
    even = total * total / (others * base + sign * total)
    room = whole / (base + sign) + last * last / (base + sign * last) - even
    empty = room <= LEAST_ROOM * even  # False for NaN, which stays NaN
    part = (square - even) / tl.where(empty, 1.0, room)
    part = tl.where(part < 0.0, 0.0, tl.where(part > 1.0, 1.0, part))
    part = tl.where(classes == 2, wide * 0.0, tl.where(empty, 0.0, part))
    if concentration is not None:
        tl.store(concentration + row, part, mask=real)
    if free_gap is not None:
        tl.store(free_gap + row, part * tl.where(classes == 2, 0.0, room) * ((1.0 - 0.75 * lead) / others), mask=real)


@triton.jit(do_not_specialize=NUMBERS)
def short_rows(
    logits, prediction, top, odds, squares, entropy_sum, margin,
    mass, mass_squares, log_odds, loss, concentration, free_gap, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    with_coins: tl.constexpr
):  # fmt: skip
    """`height` whole rows per program, of at most `width` classes each; what follows `squares` may be None."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, width)[None, :]
    real = is_row(row, rows, stride, bits)
    inside = real[:, None] & (column < count_of(classes, stride, bits))
    start = start_of(row, rows, inner, jump, stride, bits)
    z = load_rows(logits + start[:, None], real, classes, stride, step, bits, width).to(dtype)
    best = top_of(z, 1, fast)
    undefined = best - best  # 0, or NaN where the top is infinite: such a row has no geometry
    place = tl.min(tl.where(z == best[:, None], column, width), 1)
    if tl.max((undefined != 0.0).to(tl.int32), 0) > 0:  # before all others comes the first NaN: as torch.argmax
        place = tl.min(key_of(z, best[:, None], column, width), 1)
        place = tl.where(place < 0, place + width, place)
    below = z - best[:, None]
    if entropy_sum is not None:  # at once, because the classes that are not there need registers
        tl.store(margin + row, undefined - tl.sum(tl.where(inside, below, 0.0), 1), mask=real)
    scaled, loses, finite = odds_and_losses(below, fast)
    scaled = tl.where(column == place[:, None], 0.0, scaled)
    weight = tl.sum(scaled, 1) * DOWN + undefined
    product = tl.sum(loses * scaled, 1).to(tl.float64) * DOWN + undefined
    tl.store(prediction + row, place.to(tl.int64), mask=real)
    tl.store(top + row, best + undefined, mask=real)
    tl.store(odds + row, weight, mask=real)
    tl.store(squares + row, product, mask=real)
    if entropy_sum is not None:
        tl.store(entropy_sum + row, undefined - tl.sum(finite * scaled, 1) * DOWN, mask=real)
    if with_coins:
        total, square, rest = weight.to(tl.float64), product, tl.log(weight.to(tl.float64))
        flat, sharp = _kinds(total, real, classes)
        if tl.max((flat | sharp).to(tl.int32), 0) > 0:
            second = tl.maximum(tl.max(tl.where(below < 0.0, below, -float("inf")), 1), FARTHEST)
            first, other = _mass_terms(below, second[:, None], flat[:, None])
            first, other = tl.sum(tl.where(inside, first, 0.0), 1), tl.sum(tl.where(inside, other, 0.0), 1)
            total, square, rest = _masses(total, square, rest, flat, sharp, first, other, second, classes)
        _store_coins(
            weight, product, total, square, rest, flat, row, real, classes,
            mass, mass_squares, log_odds, loss, concentration, free_gap
        )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def long_rows(
    logits, prediction, top, odds, squares, entropy_sum, margin, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, group: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """One row per program, `width` classes at a time: each place of the block keeps sums of its own."""
    row = tl.program_id(0).to(tl.int64)
    begin, first, end = aligned(start_of(row, rows, inner, jump, stride, bits), classes, step)
    logits += begin
    best, key = find_top(logits, end, first, end, step, dtype, fast, group, width)
    place = tl.where(key < 0, key + end, key)
    sums, products = tl.zeros([width], dtype), tl.zeros([width], dtype)
    entropy_sums, margins = tl.zeros([width], dtype), tl.zeros([width], dtype)
    # Backwards: what was read last is still in the cache.
    last = (end - 1) // width * width
    for passed in range(0, end, width):
        start = last - passed
        below = load_block(logits, start, first, end, place, step, dtype, width) - best
        scaled, loses, finite = odds_and_losses(below, fast)
        sums += scaled
        products += loses * scaled
        if entropy_sum is not None:
            entropy_sums += finite * scaled
            margins += tl.where(is_inside(start, first, end, place, width), below, 0.0)
    undefined = best - best
    tl.store(prediction + row, (place - first).to(tl.int64))
    tl.store(top + row, best + undefined)
    tl.store(odds + row, tl.sum(sums, 0) * DOWN + undefined)
    tl.store(squares + row, tl.sum(products, 0).to(tl.float64) * DOWN + undefined)
    if entropy_sum is not None:
        tl.store(entropy_sum + row, undefined - tl.sum(entropy_sums, 0) * DOWN)
        tl.store(margin + row, undefined - tl.sum(margins, 0))


@triton.jit(do_not_specialize=NUMBERS)
def coins(
    logits, top, odds, squares, mass, mass_squares, log_odds, loss, concentration, free_gap,
    rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """What follows from the odds and squares of `height` rows per program. Only flat and sharp rows are read again."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    real, classes = is_row(row, rows, stride, bits), count_of(classes, stride, bits)
    weight, product = tl.load(odds + row, mask=real), tl.load(squares + row, mask=real)
    total, square, rest = weight.to(tl.float64), product, tl.log(weight.to(tl.float64))
    flat, sharp = _kinds(total, real, classes)
    needed = flat | sharp
    if tl.max(needed.to(tl.int32), 0) > 0:
        best = tl.load(top + row, mask=needed, other=0.0)[:, None]
        begin = logits + start_of(row, rows, inner, jump, stride, bits)[:, None]
        lane, second = tl.arange(0, width)[None, :], tl.full([height, 1], 0.0, dtype)
        if tl.max(sharp.to(tl.int32), 0) > 0:  # the largest distance below the top; a sharp row has one top
            rivals = tl.full([height, width], -float("inf"), dtype)
            for start in range(0, classes, width):
                inside = sharp[:, None] & (start + lane < classes)
                z = tl.load(begin + along(start + lane, step, bits), mask=inside, other=-float("inf")).to(dtype)
                rivals = tl.maximum(rivals, tl.where(z < best, z, -float("inf")))
            second = tl.maximum(tl.max(rivals, 1)[:, None] - best, FARTHEST)
        sums, products = tl.zeros([height, width], dtype), tl.zeros([height, width], dtype)
        for start in range(0, classes, width):
            inside = needed[:, None] & (start + lane < classes)
            z = tl.load(begin + along(start + lane, step, bits), mask=inside, other=-float("inf")).to(dtype)
            first, other = _mass_terms(z - best, second, flat[:, None])
            sums += tl.where(inside, first, 0.0)
            products += tl.where(inside, other, 0.0)
        first, other, far = tl.sum(sums, 1), tl.sum(products, 1), tl.sum(second, 1)
        total, square, rest = _masses(total, square, rest, flat, sharp, first, other, far, classes)
    _store_coins(
        weight, product, total, square, rest, flat, row, real, classes,
        mass, mass_squares, log_odds, loss, concentration, free_gap
    )  # fmt: skip


@triton.jit(do_not_specialize=NUMBERS)
def class_rank(
    logits, index, lost, ahead, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr
):  # fmt: skip
    """How a given class stands among the others of its row; `core/row_numbers.py` has the formulas."""
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    real, classes = is_row(row, rows, stride, bits), count_of(classes, stride, bits)
    begin = logits + start_of(row, rows, inner, jump, stride, bits)[:, None]
    place = tl.minimum(tl.maximum(tl.load(index + row, mask=real, other=0), 0), classes - 1).to(tl.int32)[:, None]
    class_logit = tl.load(begin + along(place, step, bits), mask=real[:, None], other=0.0).to(dtype)
    lane = tl.arange(0, width)[None, :]
    sums, counts = tl.zeros([height, width], dtype), tl.zeros([height, width], tl.int32)
    for start in range(0, classes, width):
        column = start + lane
        inside = real[:, None] & (column < classes)
        above = tl.load(begin + along(column, step, bits), mask=inside, other=-float("inf")).to(dtype) - class_logit
        wins = above > 0.0
        _, loses, _ = odds_and_losses(tl.where(wins, -above, above), fast)
        sums += tl.where(inside & (column != place), tl.where(wins, 1.0 - loses, loses), 0.0)
        counts += (inside & wins).to(tl.int32)
    tl.store(lost + row, tl.sum(sums, 1).to(tl.float64), mask=real)
    tl.store(ahead + row, tl.sum(counts, 1).to(tl.int64), mask=real)


@triton.jit
def _power(far, log_top, exponent: tl.constexpr):
    """(p (1 - p))^exponent of a rival that is so far below the top."""
    log_p = log_top - tl.minimum(far, 1e30)
    return tl.exp((log_p + log1p(-tl.exp(log_p))) * exponent)


@triton.jit(do_not_specialize=NUMBERS)
def generalized_entropy(
    logits, prediction, top, log_odds, gen, rows, classes, inner, jump, stride, step,
    bits: tl.constexpr, dtype: tl.constexpr, fast: tl.constexpr, height: tl.constexpr, width: tl.constexpr,
    exponent: tl.constexpr, most: tl.constexpr, all_count: tl.constexpr, highest_bit: tl.constexpr
):  # fmt: skip
    """`gen` of `height` whole rows per program, over the `most` nearest rivals if not all count.

    Distances below the top have the order of their bits, of which that of the last rival is found one by one.
    """
    row = tl.program_id(0).to(tl.int64) * height + tl.arange(0, height)
    column = tl.arange(0, width)[None, :]
    real = is_row(row, rows, stride, bits)
    start = start_of(row, rows, inner, jump, stride, bits)
    z = load_rows(logits + start[:, None], real, classes, stride, step, bits, width).to(dtype)
    best, rest = tl.load(top + row, mask=real, other=0.0), -tl.load(log_odds + row, mask=real, other=0.0)
    place = tl.load(prediction + row, mask=real, other=0).to(tl.int32)[:, None]
    log_top = -log1p(tl.exp(rest))
    near = log_top.to(dtype)[:, None]
    far = tl.where(column == place, float("inf"), best.to(dtype)[:, None] - z)
    if all_count:
        powers = tl.sum(_power(far, near, exponent), 1)
    else:
        if far.dtype == tl.float64:  # noqa: SIM108 (no Python)
            keys = far.to(tl.int64, bitcast=True)
        else:
            keys = far.to(tl.int32, bitcast=True)
        last = tl.zeros([height], keys.dtype)
        bit = tl.full([height], 1, keys.dtype) << highest_bit
        for _ in range(highest_bit + 1):
            fewer = tl.sum((keys < (last | bit)[:, None]).to(tl.int32), 1)
            last = tl.where(fewer < most, last | bit, last)
            bit = bit >> 1
        nearer = keys < last[:, None]
        powers = tl.sum(tl.where(nearer, _power(far, near, exponent), 0.0), 1)
        left = (most - tl.sum(nearer.to(tl.int32), 1)).to(dtype)
        powers += left * tl.sum(_power(last[:, None].to(dtype, bitcast=True), near, exponent), 1)
    whole = powers.to(tl.float64) + tl.exp((rest + 2.0 * log_top) * exponent)
    tl.store(gen + row, whole + (best - best).to(tl.float64), mask=real)
