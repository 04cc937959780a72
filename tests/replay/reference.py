"""A slow dense reference: one forward pass over prompt and answer in which evicted logits are -inf.

Shares no code with the replay: every token is in place, eviction is a bias, and signals are loops in
float64.
"""

import math

import torch
from transformers import AttentionInterface


def _attend(module, query, key, value, attention_mask, scaling=None, dense=None, **_):
    heads, kv_heads = query.shape[1], key.shape[1]
    key = key.repeat_interleave(heads // kv_heads, dim=1)
    value = value.repeat_interleave(heads // kv_heads, dim=1)
    logits = query @ key.transpose(-1, -2) * scaling
    logits = logits + dense.bias[module.layer_idx][None]
    dense.seen.append((logits[0].double(), value[0].double()))
    return (logits.softmax(-1) @ value).transpose(1, 2), None


AttentionInterface.register("dense_reference", _attend)


class Dense:
    """Runs the reference for one arm."""

    def __init__(self, loaded, prompt, answer):
        self.seen = []
        arm, plan = answer.planned.arm, answer.planned.plan
        n, end = answer.planned.n_evictable, prompt.n + len(answer.decoded.tokens) - 1
        first_blind = n if arm.condition == "stream" else prompt.n - 1
        group = loaded.query_heads // loaded.kv_heads
        causal = torch.full((end, end), -math.inf).triu(1)
        self.bias, self.not_pi = [], []
        for layer in range(loaded.layers):
            bias = causal.repeat(loaded.query_heads, 1, 1)
            for head in range(loaded.query_heads):
                kept, pi = plan.kept_LKN[layer, head // group], plan.pi_LKN[layer, head // group]
                offset = torch.where(kept, 0.0, -math.inf)
                if arm.estimator == "hajek":
                    offset = torch.where(kept, (1 / pi).log(), -math.inf)
                bias[head, first_blind:, :n] += offset.float()
            self.bias.append(bias)
        ids = torch.cat([prompt.ids, torch.tensor(answer.decoded.tokens[:-1], dtype=torch.long)])
        before = loaded.model.config._attn_implementation
        loaded.model.set_attn_implementation("dense_reference")
        try:
            with torch.no_grad():
                out = loaded.model(ids[None], use_cache=False, dense=self)
        finally:
            loaded.model.set_attn_implementation(before)
        self.logits = out.logits[0, prompt.n - 1 :].double()
        self.rows = range(prompt.n - 1, end)
        self.plan, self.n, self.group = plan, n, group

    def certificate(self, step, stride, delta, floor):
        """Mean radius over sampled heads and layers at one step, by loops over tokens."""
        radii = []
        for layer, (logits_HTS, values_HSD) in enumerate(self.seen):
            for head in range(0, logits_HTS.shape[0], stride):
                row = logits_HTS[head, self.rows[step], : self.rows[step] + 1]
                weights, values = row.softmax(-1), values_HSD[head, : len(row)]
                y = weights @ values
                pi = self.plan.pi_LKN[layer, head // self.group]
                kept = self.plan.kept_LKN[layer, head // self.group]
                variance, largest = 0.0, 0.0
                for i in range(self.n):
                    if kept[i] and pi[i] < 1:
                        term = float((1 - pi[i]) * weights[i] ** 2 * (values[i] - y).square().sum())
                        variance, largest = variance + term, max(largest, term)
                log = math.log(1 / delta)
                bound = math.sqrt(2 * variance * log) + math.sqrt(largest) * log
                radii.append(bound / (float(y.norm()) + floor))
        return sum(radii) / len(radii)

    def entropy(self, step, stride):
        """Mean normalised entropy over sampled heads and layers at one step."""
        values = []
        for logits_HTS, _ in self.seen:
            for head in range(0, logits_HTS.shape[0], stride):
                row = logits_HTS[head, self.rows[step], : self.rows[step] + 1]
                live = row[row > -math.inf].softmax(-1)
                values.append(float(-(live * live.log()).sum() / math.log(len(live))))
        return sum(values) / len(values)
