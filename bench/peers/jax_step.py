#!/usr/bin/env python3
"""The same training step in JAX: one jitted function holds forward, loss, backward and optimizer
(XLA fuses the whole step).

Parameters are donated, so XLA updates them in place. Prints median and minimum step time. Needs
jax (pip).
"""
import os

from peer import GPT, Rows, flags, seconds_of

p = flags(__doc__, steps=200)
p.add_argument("--block", default="mlp", choices=["mlp", *GPT])
p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
a = p.parse_args()
if a.threads:  # XLA's CPU thread pool follows the affinity mask
    os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:a.threads]))

import jax
import jax.numpy as jnp

tm = jax.tree_util.tree_map
low = jnp.bfloat16 if a.dtype == "bf16" else jnp.float32


def init(key):
    params = []
    for i, o in zip(a.layers, a.layers[1:]):
        key, k = jax.random.split(key)
        params.append((jax.random.uniform(k, (o, i), minval=-1, maxval=1) * i ** -0.5,
                       jnp.zeros(o)))
    return params


def gpt(w, tokens):
    """The model of examples/gpt, from weights by name; products are of type `low`."""
    o = GPT[a.block]

    def product(name, x):
        y = x.astype(low) @ w[name + "weight"].astype(low).T
        return y + w[name + "bias"].astype(low) if name + "bias" in w else y

    def norm(name, x):
        if o["norm"] == "rms":
            return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        x = x - jnp.mean(x, -1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)
        return x * w[name + ".weight"] + w[name + ".bias"]

    batch, places = tokens.shape
    x = w["letters.weight"][tokens] + w["places"]
    x = norm("first_norm", x) if o["first-norm"] else x
    mask = jnp.tril(jnp.ones((places, places), bool))
    for n in range(o["layers"]):
        at = f"blocks.{n}."
        qkv = product(at + "self_attn.in_proj_", norm(at + "norm1", x))
        q, k, v = jnp.moveaxis(qkv.reshape(batch, places, 3, o["heads"], -1), 2, 0)
        scores = jnp.einsum("bshd,bthd->bhst", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf)).astype(low)
        merged = jnp.einsum("bhst,bthd->bshd", weights, v).reshape(x.shape)
        x = x + product(at + "self_attn.out_proj.", merged)
        act = jax.nn.relu if o["act"] == "relu" else lambda h: jax.nn.gelu(h, approximate=False)
        x = x + product(at + "linear2.", act(product(at + "linear1.", norm(at + "norm2", x))))
    x = norm("final_norm", x) if o["final-norm"] else x
    return product("letters." if o["tied"] else "head.", x).astype(jnp.float32)


def logits(params, x):
    for n, (w, b) in enumerate(params):
        x = x @ w.T + b
        if n + 1 < len(params):
            x = jnp.maximum(x, 0)
    return x


def loss_fn(params, x, y):
    if a.block in GPT:  # the mean over the labels that are none of padding
        logp = jax.nn.log_softmax(gpt(params, x))
        own = jnp.take_along_axis(logp, jnp.maximum(y, 0)[..., None], 2)[..., 0]
        return -jnp.sum(own * (y >= 0)) / jnp.sum(y >= 0)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits(params, x)), y[:, None], 1))


def adam(params, grads, state):
    m, v, t = state
    t = t + 1
    m = tm(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = tm(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    c1, c2 = 1 - 0.9 ** t, 1 - 0.999 ** t
    new = tm(lambda p, m, v: p - 1e-3 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, m, v)
    return new, (m, v, t)


def step(params, state, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return *adam(params, grads, state), loss


training = jax.jit(step, donate_argnums=(0, 1))


def stepper(batch):
    if a.block in GPT:
        from safetensors.numpy import load_file
        params = tm(jnp.asarray, load_file(a.given))
        x, y = params.pop("x"), params.pop("y")
    else:
        params = init(jax.random.PRNGKey(0))
        x = jax.random.uniform(jax.random.PRNGKey(1), (batch, a.layers[0]))
        y = jax.random.randint(jax.random.PRNGKey(2), (batch,), 0, a.layers[-1])
    zeros = lambda: tm(jnp.zeros_like, params)
    state = (zeros(), zeros(), jnp.float32(0))

    def train():
        nonlocal params, state
        params, state, loss = training(params, state, x, y)
        return loss.block_until_ready()

    return train


rows = Rows(a, peer=f"jax-{jax.__version__}", block=a.block, device="cpu", dtype=a.dtype,
            threads=len(os.sched_getaffinity(0)))
for batch in a.batch:
    step = stepper(batch)
    losses = [step().item() for _ in range(10)]
    rows.add(seconds_of(step, a.steps, warmup=10), batch=batch, mode="jit-step", losses=losses)
rows.save()
