"""A tiny language model of the llama architecture in PyTorch, and its training on workshop notes."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgemeter.agent.base.progress import Tell
from edgemeter.models.builder.vocabulary import BOS

WIDTH = 64
LAYERS = 4
HEADS = 4
KV_HEADS = 2
HEAD_WIDTH = WIDTH // HEADS
FEED_FORWARD = 192
# What it was trained on; a longer context runs, with worse predictions.
TRAINED_TOKENS = 512
CONTEXT_TOKENS = 4096
ROPE_BASE = 10_000.0
EPSILON = 1e-5

BATCH = 4
RATE = 4e-3
WEIGHT_DECAY = 0.05
_WARM_UP_STEPS = 50


@dataclass(frozen=True, slots=True)
class LanguageRecipe:
    """The same recipe with the same library versions on the same kind of processor makes the same model."""

    seed: int = 20
    steps: int = 3_000
    threads: int = 1
    vocabulary: int = 512
    training_bytes: int = 4_000_000
    questions: int = 40


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention with rotated pairs of neighbouring elements, two query heads per key head."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD_WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD_WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD_WIDTH, bias=False)
        self.output = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """Return float32 [B, T, WIDTH] for `x` of that shape; `turn` is complex64 [T, HEAD_WIDTH / 2]."""
        batch, length, _ = x.shape
        q = rotate(self.q(x).view(batch, length, HEADS, HEAD_WIDTH), turn).transpose(1, 2)
        k = rotate(self.k(x).view(batch, length, KV_HEADS, HEAD_WIDTH), turn).transpose(1, 2)
        v = self.v(x).view(batch, length, KV_HEADS, HEAD_WIDTH).transpose(1, 2)
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, HEADS * HEAD_WIDTH))
        return attended


class Layer(nn.Module):  # type: ignore[misc]
    """One transformer layer: attention, then a gated feed-forward network, each after a normalisation and added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH, EPSILON)
        self.attention = Attention()
        self.ffn_norm = nn.RMSNorm(WIDTH, EPSILON)
        self.gate = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.up = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.down = nn.Linear(FEED_FORWARD, WIDTH, bias=False)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        """Return float32 [B, T, WIDTH]."""
        x = x + self.attention(self.attention_norm(x), turn)
        inner = self.ffn_norm(x)
        output: Tensor = x + self.down(functional.silu(self.gate(inner)) * self.up(inner))
        return output


class TinyLlama(nn.Module):  # type: ignore[misc]
    """Token ids int64 [B, T] to logits float32 [B, T, vocabulary]."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, EPSILON)
        self.output = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of what follows each token."""
        x, turn = self.embedding(ids), turns(ids.shape[1])
        for layer in self.layers:
            x = layer(x, turn)
        logits: Tensor = self.output(self.norm(x))
        return logits


def turns(length: int) -> Tensor:
    """Return by how much each pair is rotated at each position: complex64 [length, HEAD_WIDTH / 2]."""
    rates = ROPE_BASE ** (-torch.arange(0, HEAD_WIDTH, 2, dtype=torch.float32) / HEAD_WIDTH)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rates)
    return torch.polar(torch.ones_like(angles), angles)


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Return `x`, float32 [B, T, heads, HEAD_WIDTH], with elements 2i and 2i + 1 rotated as a pair."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn[:, None]).flatten(-2)


def train(recipe: LanguageRecipe, ids: list[int], vocabulary: int, tell: Tell) -> TinyLlama:
    """Return a model trained on `ids`, one long text; each window begins with the beginning-of-text token."""
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    text, model = torch.tensor(ids), TinyLlama(vocabulary)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.08)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(recipe.seed)
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = _rate(step, recipe.steps)
        starts = torch.randint(len(ids) - TRAINED_TOKENS, (BATCH,), generator=generator)
        window = text[starts[:, None] + torch.arange(TRAINED_TOKENS)]
        window[:, 0] = BOS
        logits = model(window[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        tell(f"training, loss {loss.item():.3f}", step + 1, recipe.steps)
    model.eval()
    return model


def _rate(step: int, steps: int) -> float:
    """Return the learning rate: a short rise, then half a cosine down to a fiftieth."""
    rise = min(1.0, (step + 1) / _WARM_UP_STEPS)
    return RATE * rise * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)
