"""T5X's parameter tree as names and shapes, and the sizes that shapes tell.

Written out, not traced from the network: reading a header needs no Flax, which would take most of
the time. A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specdec_jax.errors import SpecdecError
from specdec_jax.t5.config import T5Config

Shape = tuple[int, ...]


def shapes(config: T5Config) -> dict[str, Shape]:
    """Return name -> token-major shape of every parameter of a T5."""
    d, hk, f, v = (
        config.emb_dim,
        config.num_heads * config.head_dim,
        config.mlp_dim,
        config.vocab_size,
    )
    attention = {"query": (d, hk), "key": (d, hk), "value": (d, hk), "out": (hk, d)}
    gated = len(config.mlp_activations) > 1
    wi = [f"wi_{i}" for i in range(len(config.mlp_activations))] if gated else ["wi"]
    mlp = {**dict.fromkeys(wi, (d, f)), "wo": (f, d)}
    encoder_layer = {"attention": attention, "mlp": mlp}
    decoder_layer = {
        "self_attention": attention,
        "encoder_decoder_attention": attention,
        "mlp": mlp,
    }
    encoder_norms = ("pre_attention_layer_norm", "pre_mlp_layer_norm")
    decoder_norms = (
        "pre_self_attention_layer_norm",
        "pre_cross_attention_layer_norm",
        "pre_mlp_layer_norm",
    )
    found: dict[str, Shape] = {"token_embedder/embedding": (v, d)}
    for stack, count, blocks, norms in (
        ("encoder", config.num_encoder_layers, encoder_layer, encoder_norms),
        ("decoder", config.num_decoder_layers, decoder_layer, decoder_norms),
    ):
        buckets = config.relative_attention_num_buckets
        table = (config.num_heads, buckets)
        if not config.relative_bias_per_layer:
            found[f"{stack}/relpos_bias/rel_embedding"] = table
        found[f"{stack}/{stack}_norm/scale"] = (d,)
        for i in range(count):
            layer = f"{stack}/layers_{i}"
            if config.relative_bias_per_layer:
                found[f"{layer}/relpos_bias/rel_embedding"] = table
            for norm in norms:
                found[f"{layer}/{norm}/scale"] = (d,)
            for block, kernels in blocks.items():
                for kernel, shape in kernels.items():
                    found[f"{layer}/{block}/{kernel}/kernel"] = shape
    if not config.logits_via_embedding:
        found["decoder/logits_dense/kernel"] = (d, v)
    return found


def config_of(found: Mapping[str, Shape], *, where: object) -> T5Config:
    """Return the sizes that a tree of T5X's names and shapes has.

    Shapes do not tell everything: a gated feed-forward layer is taken to be GELU, a plain one ReLU,
    and the farthest distance T5's 128. Every public T5 is such.

    Raises:
        SpecdecError: the names that carry the sizes are absent.
    """
    gate = "encoder/layers_0/mlp/wi_0/kernel"
    plain = "encoder/layers_0/mlp/wi/kernel"
    own_bias = "encoder/layers_0/relpos_bias/rel_embedding"
    needed = (
        "token_embedder/embedding",
        own_bias if own_bias in found else "encoder/relpos_bias/rel_embedding",
        "encoder/layers_0/attention/query/kernel",
        "decoder/layers_0/self_attention/query/kernel",
    )
    absent = [name for name in needed if len(found.get(name, ())) != 2]
    if len(found.get(gate, found.get(plain, ()))) != 2:
        absent.append(f"{plain} or wi_0")
    if absent:
        have = ", ".join(sorted(found)[:4]) or "none"
        raise SpecdecError(
            f"{where} is not a T5: a T5 has {', '.join(absent)}, this has {len(found)} arrays "
            f"({have}, ..)."
        )
    vocab_size, emb_dim = found[needed[0]]
    heads, buckets = found[needed[1]]
    return T5Config(
        vocab_size=vocab_size,
        emb_dim=emb_dim,
        num_heads=heads,
        head_dim=max(found[needed[2]][1] // max(heads, 1), 1),
        mlp_dim=found[gate if gate in found else plain][1],
        num_encoder_layers=_layers(found, "encoder"),
        num_decoder_layers=_layers(found, "decoder"),
        mlp_activations=("gelu", "linear") if gate in found else ("relu",),
        logits_via_embedding="decoder/logits_dense/kernel" not in found,
        relative_attention_num_buckets=buckets,
        relative_bias_per_layer=own_bias in found,
    )


_PADDED = {32128: 32100, 250112: 250100, 256384: 256300}


def ids_in_use(vocab_size: int) -> int:
    """Return how many rows of a public T5's embedding stand for ids.

    T5 (32000 pieces, 100 sentinels), mT5 (250000 and 100) and umT5 (256000 and 300) round their
    embeddings up to a multiple of 128. Of any other size every row is taken to be in use.
    """
    return _PADDED.get(vocab_size, vocab_size)


def _layers(found: Mapping[str, Shape], stack: str) -> int:
    prefix = f"{stack}/layers_"
    return 1 + max(
        int(name[len(prefix) :].split("/")[0]) for name in found if name.startswith(prefix)
    )


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, leaf) of nested dictionaries, parts joined by ``/``, in the tree's order."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flatten(value, f"{name}/")
        else:
            yield name, value


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dictionaries of names whose parts are joined by ``/``.

    Example:
        >>> nest({"a/b": 1, "a/c": 2})
        {'a': {'b': 1, 'c': 2}}
    """
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree
