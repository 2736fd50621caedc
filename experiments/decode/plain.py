"""The decoder and its three ways of decoding in plain numpy, without a cache: what tests compare
with. Everything is computed again for every token, in f64 so that near ties fall one way."""

import numpy as np


class Decoder:
    """The model of weights.weights(config)."""

    def __init__(self, config, weights):
        self.config = config
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def linear(self, x, name):
        return x @ self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def attention(self, q, k, v):
        """Causal attention by head over (n, width) each."""
        n, d = len(q), self.config.width // self.config.heads
        q, k, v = (x.reshape(n, self.config.heads, d).transpose(1, 0, 2) for x in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(d)
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(n, -1)

    def logits(self, ids):
        """Returns the logits (vocabulary) after the last of `ids`."""
        x = self.w["wte.weight"][ids] + self.w["wpe.weight"][:len(ids)]
        for i in range(self.config.layers):
            qkv = self.linear(self.norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
            x = x + self.linear(self.attention(*np.split(qkv, 3, -1)), f"h.{i}.attn.c_proj")
            h = self.linear(self.norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
            h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
            x = x + self.linear(h, f"h.{i}.mlp.c_proj")
        return self.w["wte.weight"] @ self.norm(x, "ln_f")[-1]

    def decode(self, ids, max_new, choose):
        """Extends `ids` by choose(logits, number of the new token), up to the end token."""
        ids = [int(i) for i in ids]
        for number in range(min(max_new, self.config.context - len(ids))):
            ids.append(int(choose(self.logits(ids), number)))
            if ids[-1] == self.config.end:
                break
        return np.array(ids, np.int64)

    def greedy(self, ids, max_new):
        return self.decode(ids, max_new, lambda logits, _: np.argmax(logits))

    def sample(self, ids, max_new, temperature, uniform, top_k):
        """Draws among the top_k by the inverse of their cumulated probabilities."""
        def choose(logits, number):
            order = np.argsort(-logits, kind="stable")[:top_k]
            x = logits[order] / temperature
            p = np.exp(x - x.max())
            reached = np.cumsum(p / p.sum())
            return order[min((reached <= uniform[number]).sum(), top_k - 1)]
        return self.decode(ids, max_new, choose)

    def beam(self, ids, max_new, beams):
        """Beam search. A beam that has ended keeps its score and its sequence. Returns the sequences
        (beams lists) and their scores (sums of log-probabilities), the best first."""
        paths, ended = [([int(i) for i in ids], 0.0)], [False]
        for _ in range(min(max_new, self.config.context - len(ids))):
            candidates = []
            for (path, score), over in zip(paths, ended):
                if over:
                    candidates.append((score, path, True))
                    continue
                logits = self.logits(path)
                log_p = logits - logits.max()
                log_p -= np.log(np.exp(log_p).sum())
                for token in np.argsort(-log_p, kind="stable")[:beams]:
                    candidates.append((score + log_p[token], path + [int(token)],
                                       token == self.config.end))
            candidates.sort(key=lambda c: -c[0])
            paths = [(path, score) for score, path, _ in candidates[:beams]]
            ended = [over for _, _, over in candidates[:beams]]
            if all(ended):
                break
        return [path for path, _ in paths], np.array([score for _, score in paths])
