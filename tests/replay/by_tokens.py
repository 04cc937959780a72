"""Every number of a log row once more, token by token in float64: scores, pi, draws, greedy text, signals.

Shares no code with kvexp: a forward pass of transformers' own, in which evicted tokens have a bias of
minus infinity, and loops over tokens. Only the keyed uniforms of the draws are the project's.
"""

import hashlib
import json
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import AttentionInterface


def _attend(module, query, key, value, attention_mask, scaling=None, note=None, **_):
    group = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(group, 1).transpose(-1, -2) * scaling
    logits = logits + note.bias(module.layer_idx, logits.shape[-1])
    rows = logits[0] if note.offsets is None else logits[0, :, -1:]  # of an answer the last one is enough
    note.logits.append(rows.double().numpy())
    note.values.append(value[0].double().numpy())
    return (logits.softmax(-1) @ value.repeat_interleave(group, 1)).transpose(1, 2), None


AttentionInterface.register("by_tokens", _attend)


@dataclass
class Note:
    """One forward pass: `offsets` (L, H, n) is added to the logits of rows from `blind_from` on."""

    offsets: np.ndarray | None = None
    blind_from: int = 0
    logits: list = field(default_factory=list)
    values: list = field(default_factory=list)

    def bias(self, layer, length):
        causal = torch.full((length, length), -math.inf).triu(1)
        if self.offsets is None:
            return causal
        made = causal.repeat(len(self.offsets[layer]), 1, 1)
        offset = torch.from_numpy(self.offsets[layer]).float()
        made[:, self.blind_from :, : offset.shape[-1]] += offset[:, None]
        return made


def forward(model, ids, note):
    before = model.config._attn_implementation
    model.set_attn_implementation("by_tokens")
    try:
        with torch.no_grad():
            return model(ids[None], use_cache=False, note=note).logits[0, -1].double().numpy()
    finally:
        model.set_attn_implementation(before)


def softmax(row):
    shifted = np.exp(row - row.max())
    return shifted / shifted.sum()


@dataclass
class Rules:
    """What a study fixes, stated apart from the product's Protocol."""

    sinks: int = 4
    recent: int = 32
    stride: int = 4
    steps: int = 6
    delta: float = 0.1
    floor: float = 1e-9
    least_pi: float = 1e-6
    first_from_prefill: bool = False  # an aware arm's first answer token is the full cache's


class Prompted:
    """One prompt of one model after its prefill."""

    def __init__(self, loaded, prompt, rules):
        self.loaded, self.prompt, self.rules = loaded, prompt, rules
        self.group = loaded.query_heads // loaded.kv_heads
        note = Note()
        forward(loaded.model, prompt.ids, note)
        self.logits, self.values = note.logits, note.values

    def score(self, layer, kv, rows, n):
        """Attention of some query rows on each of n tokens, mean over the heads of a KV head."""
        mass = np.zeros(n)
        for row in rows:
            for head in range(kv * self.group, (kv + 1) * self.group):
                mass[: row + 1] += softmax(self.logits[layer][head, row, : row + 1]) / self.group
        return mass

    def scores(self, arm, n):
        """(L, K, n) of the arm's score; None without one."""
        kind = type(arm.score).__name__
        if arm.score is None:
            return None
        rows = {
            "Accumulated": lambda: [i for i in range(n) if (i + 1) % arm.score.stride == 0],
            "Window": lambda: [i for i in range(n) if i >= n - arm.score.window],
            "ValueWeighted": lambda: [i for i in range(n) if i >= n - arm.score.window],
            "Question": lambda: [i for i in range(*self.prompt.question) if i < n],
        }[kind]()
        made = np.zeros((self.loaded.layers, self.loaded.kv_heads, n))
        for layer in range(self.loaded.layers):
            for kv in range(self.loaded.kv_heads):
                mass = self.score(layer, kv, rows, n)
                if kind == "Window":
                    half = arm.score.pool // 2
                    mass = [np.mean(mass[max(0, i - half) : i + half + 1]) for i in range(n)]
                if kind == "ValueWeighted":
                    mass = [m * np.abs(self.values[layer][kv, i]).sum() for i, m in enumerate(mass)]
                made[layer, kv] = mass
        return made

    def inclusion(self, arm, scores, n):
        """pi (L, K, n)."""
        kind, pi = type(arm.design).__name__, np.ones((self.loaded.layers, self.loaded.kv_heads, n))
        if kind == "Full":
            return pi
        free = list(range(self.rules.sinks, n - self.rules.recent))
        m = round(arm.budget * n) - self.rules.sinks - self.rules.recent
        for place in np.ndindex(pi.shape[:2]):
            if kind == "Recency":
                pi[place][free] = [float(i >= free[-1] + 1 - m) for i in free]
            elif kind == "Uniform":
                pi[place][free] = m / len(free)
            elif kind == "TopK":
                best = set(sorted(free, key=lambda i, s=scores[place]: (-s[i], i))[:m])
                pi[place][free] = [float(i in best) for i in free]
            else:
                pi[place][free] = self.proportional(scores[place][free], m)
        return pi

    def proportional(self, score, m):
        low, high = 0.0, 1 / score[score > 0].min()
        for _ in range(200):
            c = (low + high) / 2
            spent = np.clip(c * score, self.rules.least_pi, 1).sum()
            low, high = (c, high) if spent < m else (low, c)
        return np.clip(high * score, self.rules.least_pi, 1)

    def row(self, arm, uniforms, most):
        """Every field that decoding and planning decide, by the name that it has in the log."""
        n = self.prompt.n_prefix + self.prompt.n_context if arm.condition == "stream" else self.prompt.n - 1
        scores = self.scores(arm, n)
        pi = self.inclusion(arm, scores, n)
        kept = uniforms(arm, pi.shape) < pi if arm.design.is_random else pi > 0
        hajek = arm.estimator == "hajek"
        with np.errstate(divide="ignore"):
            offset = np.where(kept, -np.log(pi) if hajek else 0.0, -np.inf)
        late = self.rules.first_from_prefill and arm.condition != "stream"
        blind_from = n if arm.condition == "stream" else self.prompt.n - 1 + late
        steps = self.decode(np.repeat(offset, self.group, 1), blind_from, most)
        per_head = kept.sum(-1)
        made = {
            "n_evictable": n,
            "expected_kept": float(pi.sum(-1).mean()),
            "realised_kept": float(per_head.mean()),
            "tail_kept": float((kept & (pi < 1)).sum(-1).mean()) if arm.design.is_random else None,
            "first_step_cached": float(per_head.mean()) + self.prompt.n - n,
            **self.eviction_signals(scores, kept, arm),
            **self.step_signals(steps[: self.rules.steps][late:], pi, kept, arm),
            "n_generated": len(steps),
            "stopped_by": "stop_token" if steps[-1]["token"] in self.loaded.stop_ids else "length",
            "output_logprob": float(np.mean([step["logprob"] for step in steps])),
            "min_logit_gap": min(step["gap"] for step in steps),
            "keep_digest": digest(kept),
            "kept": kept,
        }
        tokens = [step["token"] for step in steps]
        return made | {"text": text(tokens[:-1] if made["stopped_by"] == "stop_token" else tokens)}

    def decode(self, offsets, blind_from, most):
        ids, steps = self.prompt.ids.tolist(), []
        while len(steps) < most and not (steps and steps[-1]["token"] in self.loaded.stop_ids):
            note = Note(offsets, blind_from)
            logits = forward(self.loaded.model, torch.tensor(ids), note)
            second, first = np.sort(logits)[-2:]
            token = int(logits.argmax())
            logprob = first - math.log(np.exp(logits - first).sum()) - first
            rows = [part[:, -1] for part in note.logits]
            steps.append(
                {
                    "token": token,
                    "logprob": logprob,
                    "gap": first - second,
                    "rows": rows,
                    "values": note.values,
                }
            )
            ids.append(token)
        return steps

    def eviction_signals(self, scores, kept, arm):
        if scores is None:
            return {"evicted_mass": None, "margin": None}
        lost, margins = [], []
        for place in np.ndindex(kept.shape[:2]):
            score, stays = scores[place], kept[place]
            lost.append(score[~stays].sum() / score.sum())
            free = slice(self.rules.sinks, len(score) - self.rules.recent)
            score, stays = score[free], stays[free]
            if not arm.design.is_random:
                sd = math.sqrt(((score - score.mean()) ** 2).sum() / len(score))
                margins.append((min(score[stays]) - max(score[~stays])) / sd)
        return {"evicted_mass": float(np.mean(lost)), "margin": float(np.mean(margins)) if margins else None}

    def step_signals(self, steps, pi, kept, arm):
        """Certificate and entropy of sampled heads at the first steps, and cells without any variance."""
        by_step, entropies, blind = [], [], 0
        n, log = pi.shape[-1], math.log(1 / self.rules.delta)
        for step in steps:
            radii = []
            for layer, (rows_HS, values_KSD) in enumerate(zip(step["rows"], step["values"], strict=True)):
                for head in range(0, self.loaded.query_heads, self.rules.stride):
                    kv = head // self.group
                    w, values = softmax(rows_HS[head]), values_KSD[kv]
                    y = w @ values
                    live = w[np.isfinite(rows_HS[head])]
                    some = live[live > 0]
                    entropies.append(-(some * np.log(some)).sum() / math.log(len(live)))
                    distances = ((values[:n] - y) ** 2).sum(-1)
                    terms = (1 - pi[layer, kv]) * w[:n] ** 2 * distances
                    v, largest = terms[kept[layer, kv]].sum(), terms[kept[layer, kv]].max()
                    blind += v == 0 and not kept[layer, kv].all()
                    bound = math.sqrt(2 * v * log) + math.sqrt(largest) * log
                    radii.append(bound / (math.sqrt((y**2).sum()) + self.rules.floor))
            by_step.append(float(np.mean(radii)))
        certified = bool(steps) and arm.design.is_random and arm.estimator == "hajek"
        return {
            "entropy": float(np.mean(entropies)) if steps else None,
            "certificate_steps": by_step if certified else None,
            "certificate": max(by_step) if certified else None,
            "zero_variance_cells": blind if certified else None,
        }


def digest(kept_LKN):
    """sha256 of the bits, eight a byte, the first in the highest place, zeros at the end."""
    bits = "".join(str(int(bit)) for bit in kept_LKN.flatten())
    bits += "0" * (-len(bits) % 8)
    return hashlib.sha256(int(bits, 2).to_bytes(len(bits) // 8, "big")).hexdigest()


def text(tokens):
    """Bytes of the tests' tokenizer: three special tokens, then the printable form of every byte, sorted."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    character = {byte: chr(byte) for byte in plain} | {b: chr(256 + i) for i, b in enumerate(other)}
    of_token = {3 + i: byte for i, byte in enumerate(sorted(character, key=character.get))}
    return bytes(of_token[t] for t in tokens if t > 2).decode("utf-8", errors="replace")


def probe(kept_LKN, key):
    """512 keyed bits of a keep set as a hexadecimal number."""
    flat = kept_LKN.flatten()
    number = int(hashlib.sha256(json.dumps(["probe", *key]).encode()).hexdigest()[:32], 16)
    raw = np.random.Philox(key=number).random_raw(512)
    return f"{int(''.join(str(int(flat[int((int(r) >> 11) / 2**53 * len(flat))])) for r in raw), 2):0128x}"
