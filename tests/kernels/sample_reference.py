#!/usr/bin/env python3
"""Every step of llama.cpp's kind written once more, from the papers' formulas: sample_reference.py SAMPLE_LINES DEVICE...

For each step 1,000 random rows, and as many of all steps together. What a step keeps is a list here, a token drawn
from it is exact, and so is the number that Mirostat goes on with; a row whose draw lies within a rounding of the next
token's, or whose cut does, is left out, and there may be few of those.
"""

import math
import random
import struct
import subprocess
import sys

VOCAB, ROWS = 200, 1000
NAMES = ("temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty typical_p xtc_probability "
         "xtc_threshold dynatemp_range dynatemp_exponent top_n_sigma mirostat mirostat_tau mirostat_eta").split()
NEUTRAL = dict(zip(NAMES, (1, 1, -1, 0, 0, 0, 1, 1, 0, 0.1, 0, 1, 0, 0, 5, 0.1)))
NEAR = 3e-6


def as_float(number):
    return struct.unpack("f", struct.pack("f", number))[0]


def philox(seed, position):
    """Philox 4x32-10: two uniform numbers."""
    c, k = [position & 0xffffffff, position >> 32, 0, 0], [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & 0xffffffff, first >> 32 ^ c[3] ^ k[1], first & 0xffffffff]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return ((c[1] << 32 | c[0]) >> 11) / 2**53, ((c[3] << 32 | c[2]) >> 11) / 2**53


class Near(Exception):
    """A number is too near a limit for its rounding to be without effect."""


def exceeds(value, limit):
    if abs(value - limit) <= NEAR * max(abs(value), abs(limit), 1e-30):
        raise Near
    return value > limit


def softmax(logits, temperature=1.0):
    largest = max(logits.values())
    weights = {token: math.exp((logit - largest) / temperature) for token, logit in logits.items()}
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def entropy(shares):
    return -sum(share * math.log(share) for share in shares.values() if share > 0)


def top_n_sigma(logits, n):
    mean = sum(logits.values()) / len(logits)
    sigma = math.sqrt(sum((logit - mean)**2 for logit in logits.values()) / len(logits))
    largest = max(logits.values())
    return {t: x for t, x in logits.items() if x == largest or exceeds(n * sigma, largest - x)}


def min_p(logits, temperature, share):
    largest = max(logits.values())
    return {t: x for t, x in logits.items() if x == largest or exceeds(math.exp((x - largest) / temperature), share)}


def ranked(logits):
    return sorted(logits, key=lambda token: (-logits[token], token))


def until(tokens, shares, mass):
    """The first of the tokens whose shares reach the mass."""
    kept, total = [], 0.0
    for token in tokens:
        kept.append(token)
        total += shares[token]
        if exceeds(total, mass):
            break
    return kept


def only(logits, tokens):
    return {token: logits[token] for token in logits if token in set(tokens)}


def typical_p(logits, temperature, mass):
    shares = softmax(logits, temperature)
    expected = entropy(shares)
    order = sorted(logits, key=lambda token: abs(-math.log(shares[token]) - expected))
    return only(logits, until(order, shares, mass))


def xtc(logits, temperature, threshold):
    shares = softmax(logits, temperature)
    above = [token for token in ranked(logits) if exceeds(shares[token], threshold)]
    return only(logits, set(logits) - set(above[:-1]))


def dynamic_temperature(logits, s):
    count = len(logits)
    low, high = max(0, s["temperature"] - s["dynatemp_range"]), s["temperature"] + s["dynatemp_range"]
    if count < 2:
        return s["temperature"]
    part = entropy(softmax(logits)) / math.log(count)
    return max(low + (high - low) * part**s["dynatemp_exponent"], 0.01)


def mirostat(logits, s, mu):
    shares = softmax(logits, s["temperature"])
    order = ranked(logits)
    if s["mirostat"] == 2:
        kept = [token for token in order if not exceeds(-math.log2(shares[token]), mu)]
        return only(logits, kept or order[:1])
    top = [token for token in order[:100] if logits[order[0]] - logits[token] <= 24 * s["temperature"]]
    steps = [math.log((i + 2) / (i + 1)) for i in range(len(top) - 1)]
    falls = [(logits[a] - logits[b]) / s["temperature"] for a, b in zip(top, top[1:])]
    exponent = sum(map(lambda a, b: a * b, steps, falls)) / sum(step * step for step in steps)
    excess = exponent - 1
    k = (excess * 2**mu / (1 - VOCAB**-excess))**(1 / exponent)
    if abs(k - round(k)) < 1e-3 * k:
        raise Near
    return only(logits, order[:max(1, int(min(k, VOCAB)))])


def sample(s, mu, seed, position, values):
    """The token and the next mu."""
    uniform, coin = philox(seed, position)
    logits, temperature = dict(enumerate(values)), s["temperature"]
    if s["mirostat"]:
        logits = mirostat(logits, s, mu)
    else:
        first = 1 if s["dynatemp_range"] > 0 else temperature
        if s["top_n_sigma"] > 0:
            logits = top_n_sigma(logits, s["top_n_sigma"])
        if s["min_p"] > 0:
            logits = min_p(logits, first, s["min_p"])
        if s["top_k"] > 0:
            logits = only(logits, ranked(logits)[:s["top_k"]])
        if s["top_p"] < 1:
            logits = only(logits, until(ranked(logits), softmax(logits, first), s["top_p"]))
        if s["typical_p"] < 1:
            logits = typical_p(logits, first, s["typical_p"])
        if coin < s["xtc_probability"] and s["xtc_threshold"] <= 0.5:
            logits = xtc(logits, first, s["xtc_threshold"])
        if s["dynatemp_range"] > 0:
            largest = max(logits.values())
            logits = {token: x for token, x in logits.items() if largest - x <= 24}
            temperature = dynamic_temperature(logits, s)
    shares, total = softmax(logits, temperature), 0.0
    for token in sorted(logits):
        total += shares[token]
        if exceeds(total, uniform):
            break
    surprise = -math.log2(shares[token])
    return token, mu - s["mirostat_eta"] * (surprise - s["mirostat_tau"]) if s["mirostat"] else 0


def draw_settings(rng, step):
    choices = {"typical_p": (0.95, 0.5, 0.2), "top_n_sigma": (0.5, 1, 2), "dynatemp_range": (0.3, 0.9),
               "xtc_probability": (0.5, 1)}
    s = dict(NEUTRAL, temperature=rng.choice((0.6, 1, 1.4)))
    for name in choices if step == "all" else [step] if step in choices else []:
        s[name] = rng.choice(choices[name])
    s["xtc_threshold"] = rng.choice((0.05, 0.1, 0.02))
    s["dynatemp_exponent"] = rng.choice((1, 0.5, 2))
    if step == "all":
        s.update(top_p=rng.choice((1, 0.9)), top_k=rng.choice((-1, 50)), min_p=rng.choice((0, 0.02)))
    if step.startswith("mirostat"):
        s.update(mirostat=int(step[-1]), mirostat_tau=rng.choice((3, 5)))
    return {name: value if name in ("top_k", "mirostat") else as_float(value) for name, value in s.items()}


def draw_rows(step):
    rng = random.Random(step)
    for _ in range(ROWS):
        spread = rng.choice((1, 2, 4))
        values = [as_float(rng.gauss(0, spread)) for _ in range(VOCAB)]
        yield draw_settings(rng, step), as_float(rng.uniform(0.5, 9)), rng.getrandbits(64), rng.getrandbits(64), values


def check(program, device, step):
    rows = list(draw_rows(step))
    lines = [" ".join(map(repr, [*(s[name] for name in NAMES), mu, seed, position, *values]))
             for s, mu, seed, position, values in rows]
    done = subprocess.run([program, device, str(VOCAB)], input="\n".join(lines) + "\n", text=True, check=True,
                          stdout=subprocess.PIPE, timeout=100)
    answers = [(int(token), float(mu)) for token, mu in map(str.split, done.stdout.splitlines())]
    assert len(answers) == ROWS, f"{len(answers)} answers"
    num_near, num_plain = 0, 0
    for row, (token, mu) in zip(rows, answers):
        try:
            expected, next_mu = sample(*row)
            num_plain += sample(NEUTRAL | {"temperature": row[0]["temperature"]}, *row[1:])[0] == expected
        except Near:
            num_near += 1
            continue
        assert token == expected, f"{device}, {step}: token {token}, expected {expected}: {row[0]}, mu {row[1]}"
        assert not row[0]["mirostat"] or abs(mu - next_mu) < 1e-4, f"{device}, {step}: mu {mu}, expected {next_mu}"
    assert num_near < ROWS / 20, f"{num_near} near ones"
    assert num_plain < ROWS * 0.97, f"{step} changes too little: {num_plain} tokens are what they are without it"
    print(f"{device} {step}: {ROWS - num_near} rows equal, {num_plain} of them as without it")


def main():
    program, *devices = sys.argv[1:]
    for device in devices:
        for step in ("typical_p", "top_n_sigma", "xtc_probability", "dynatemp_range", "mirostat 1", "mirostat 2", "all"):
            check(program, device, step)


main()
