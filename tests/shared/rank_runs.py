"""Small models that each of several processes runs for real and counts, with gloo between them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from live_storages import LiveStorages
from mesh_models import causal_lm
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as context
from torch.distributed.tensor.experimental._context_parallel import set_rotate_method
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils._pytree import tree_leaves

import opcost
from opcost.frontends.zoo import declare_torchvision_operators

B, D, H = 8, 64, 256
INPUT = torch.ones(B, D)
aten = torch.ops.aten
WIDTH, HEADS, WORDS = 64, 8, 128
TOKENS = torch.zeros(2, 32, dtype=torch.long)
LABELLED = {"input_ids": TOKENS, "labels": TOKENS, "use_cache": False}
ODD = 250  # rows that four ranks do not share evenly
LIMIT = timedelta(seconds=240)

Sent = tuple[str, int, int, int | None]
"""A collective: its operator, the bytes of its larger side, the ranks of its group, and of a message the other rank there."""


class Net(nn.Module):
    def __init__(self, hidden: int = H) -> None:
        super().__init__()
        layers = [(nn.Linear(D, hidden), nn.ReLU(), nn.Linear(hidden, D)) for _ in range(3)]
        self.blocks = nn.ModuleList(nn.Sequential(*each) for each in layers)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        for block in self.blocks:
            x = block(x)
        return {"loss": x.sum()}


class RankRun(LiveStorages):
    """What a rank sends beside what its storages have.

    Gloo keeps what it sends to a rank as long as the schedule of a pipeline keeps the request, which GPUs do not: it gets copies.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sent: list[Sent] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name == "c10d::send":
            result = func([tensor.clone() for tensor in args[0]], *args[1:], **(kwargs or {}))
        else:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        if func.namespace in ("c10d", "_c10d_functional") and (group := group_of(args)) is not None:
            sides = [sum(t.nbytes for t in tree_leaves(side) if isinstance(t, Tensor)) for side in (*args, result)]
            peer = args[2] if func._schema.name in ("c10d::send", "c10d::recv_") else None
            self.sent.append((func._schema.name, max(sides), group.size(), peer))
        return result


def group_of(args: tuple[Any, ...]) -> Any:
    """The process group that an operator is given: an object or, last of all texts, its name; None of one that only waits."""
    found = [arg for arg in args if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type())]
    if found:
        return dist.ProcessGroup.unbox(found[0])
    names = [arg for arg in args if isinstance(arg, str)]
    return dist.distributed_c10d._resolve_process_group(names[-1]) if names else None


def fully_sharded() -> nn.Module:
    net = Net(ODD)
    for block in net.blocks:
        fully_shard(block)
    return summing(fully_shard(net))


def summing(net: nn.Module) -> nn.Module:
    """A fully sharded model that divides sums of gradients itself: gloo has no averages."""
    for module in net.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return net


def flat_sharded() -> nn.Module:
    wrap = ModuleWrapPolicy({nn.Sequential})
    return FullyShardedDataParallel(Net(), auto_wrap_policy=wrap, device_id=torch.device("cpu"))


def data_parallel() -> nn.Module:
    return nn.parallel.DistributedDataParallel(Net(), bucket_cap_mb=0.1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "fully_shard": fully_sharded, "FullyShardedDataParallel": flat_sharded, "DistributedDataParallel": data_parallel,
    "fully_shard, accumulating": fully_sharded,
}  # fmt: skip
ACCUMULATING = frozenset({"fully_shard, accumulating"})


class Language(nn.Module):
    """A decoder with its loss, whose layers have usual names."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.lm_head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm(x))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.w2 = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


def tensor_parallel(net: nn.Module, mesh: Any = None, *, sequence: bool = False, loss: bool = False) -> nn.Module:
    """Spread by hand over a mesh, or all ranks, as torchtitan does it, but with distributed tensors between layers."""
    whole, sharded = Replicate(), Shard(1) if sequence else Replicate()
    local = not sequence
    head: dict[str, Any] = (
        {"output_layouts": Shard(-1), "use_local_output": False} if loss else {"output_layouts": whole}
    )
    plan: dict[str, Any] = {
        "tok_embeddings": RowwiseParallel(input_layouts=whole, output_layouts=sharded, use_local_output=local),
        "layers.*.attention.wo": RowwiseParallel(output_layouts=sharded, use_local_output=local),
        "layers.*.feed_forward.w2": RowwiseParallel(output_layouts=sharded, use_local_output=local),
        "lm_head": ColwiseParallel(input_layouts=sharded, **head),
        **{f"layers.*.{name}": ColwiseParallel() for name in COLWISE},
    }
    if sequence:
        gathered = {
            name: PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(whole,)) for name in BLOCKS
        }
        plan |= {"norm": SequenceParallel(), **{f"layers.*.{name}": SequenceParallel() for name in NORMS}}
        plan |= {f"layers.*.{name}": style for name, style in gathered.items()}
    return parallelize_module(net, mesh or init_device_mesh("cpu", (dist.get_world_size(),)), plan)


def sharded_too(net: nn.Module) -> nn.Module:
    """Pairs of ranks share layers, and parameters are sharded over the pairs."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("fsdp", "tp"))
    return fully_sharded_layers(tensor_parallel(net, mesh["tp"], sequence=True, loss=True), mesh["fsdp"])


def fully_sharded_layers(net: nn.Module, mesh: Any = None) -> nn.Module:
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net.layers:
        fully_shard(layer, mesh=mesh)
    return summing(fully_shard(net, mesh=mesh))


COLWISE = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3")
BLOCKS, NORMS = ("attention", "feed_forward"), ("attention_norm", "ffn_norm")


@contextmanager
def vocabulary_in_parts(given: Tensor) -> Iterator[Tensor]:
    with loss_parallel():
        yield given


@contextmanager
def sequence_in_parts(method: str, given: Tensor, *, cp: int = 0) -> Iterator[Tensor]:
    """Context parallelism as PyTorch has it, with the kernel of processors, which it does not know, in its ring."""
    forward, backward = (
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._scaled_dot_product_flash_attention_for_cpu_backward,
    )

    def in_ring(function: Callable[..., Any], own: Any, names: list[str]) -> Callable[..., Any]:
        def called(func: Any, args: Any, kwargs: Any) -> Any:
            mesh = args[0].device_mesh
            local = [getattr(arg, "_local_tensor", arg) for arg in args]
            given = {**dict(zip(names, local, strict=False)), **kwargs}
            given.pop("attn_mask", None)
            found = function(mesh.get_group(), 2, own, **given)
            return tuple(DTensor.from_local(each, mesh, [Shard(2)], run_check=False) for each in found)

        return called

    inputs, options = ["query", "key", "value"], ["dropout_p", "is_causal"]
    handlers = {
        forward.default: in_ring(context._templated_ring_attention, forward, inputs + options),
        backward.default: in_ring(
            partial(context._templated_ring_attention_backward, grad_out_name="grad_out"), backward.default,
            ["grad_out", *inputs, "out", "logsumexp", *options],
        ),
    }  # fmt: skip
    ranks, whole = dist.get_world_size(), given.clone()
    mesh = init_device_mesh("cpu", (ranks // (cp or ranks), cp or ranks), mesh_dim_names=("others", "cp"))["cp"]
    set_rotate_method(method)
    with context_parallel(mesh, buffers=[whole], buffer_seq_dims=[1]):
        DTensor._op_dispatcher._custom_op_handlers.update(handlers)
        yield whole.clone()


# -- experts ---------------------------------------------------------------------------------------------------------------


EXPERTS, USES, EACH = 8, 2, 48  # experts, those of each token, and their width


def mixtral() -> nn.Module:
    """A mixture of experts of transformers, without data."""
    sizes = {
        "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": WORDS,
        "num_local_experts": EXPERTS, "num_experts_per_tok": USES, "intermediate_size": EACH, "num_hidden_layers": 2,
    }  # fmt: skip
    return causal_lm("mixtral", **sizes, attn_implementation="sdpa")


def with_balanced_routing(net: nn.Module) -> nn.Module:
    """A model of transformers with data, whose routers choose the experts in turn, in the memory of those that they chose."""
    net = net.to_empty(device="cpu")
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    net.model.rotary_emb = type(net.model.rotary_emb)(net.config)

    def balance(module: nn.Module, args: Any, output: tuple[Tensor, ...]) -> None:
        output[2].data.view(-1).copy_(torch.arange(output[2].numel()) % EXPERTS)

    for layer in net.model.layers:
        layer.mlp.gate.register_forward_hook(balance)
    return net


def expert_parallel(net: nn.Module, *, ep: int = 0) -> nn.Module:
    """Experts spread by transformers over some ranks, or all, and sharded over the others; the rest is sharded over all."""
    from transformers.distributed.expert_parallel import apply_expert_parallelism

    net, ranks = with_balanced_routing(net), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks // (ep or ranks), ep or ranks), mesh_dim_names=("fsdp", "ep"))
    apply_expert_parallelism(net, mesh["ep"], None, net.ep_plan)
    every = init_device_mesh("cpu", (ranks,))
    for layer in net.model.layers:
        fully_shard(layer.mlp.experts, mesh=mesh["fsdp"])
        fully_shard(layer, mesh=every)
    return summing(fully_shard(net, mesh=every))


class Mixture(nn.Module):
    """Blocks of experts with stacked weights, which get rows sorted by expert."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Routed() for _ in range(2))

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        x = self.embed(tokens).flatten(0, 1)
        for block in self.blocks:
            x = x + block(x)
        return {"loss": x.sum()}


class Router(nn.Linear):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.topk(super().forward(x).softmax(-1), USES)


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = Router(WIDTH, EXPERTS, bias=False), Stacked()

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x)
        order = chosen.flatten().argsort()
        made = self.experts(x[order // USES], chosen.flatten().bincount(minlength=EXPERTS))
        return torch.zeros_like(x).index_add(0, order // USES, made * weights.flatten()[order, None])


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, EACH))
        self.down = nn.Parameter(torch.randn(EXPERTS, EACH, WIDTH))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        groups = rows.view(len(counts), -1, WIDTH)
        return torch.bmm(torch.relu(torch.bmm(groups, self.up)), self.down).flatten(0, 1)


def sent_by_hand(net: nn.Module) -> nn.Module:
    """Each rank has its part of the stacked weights, and tokens are sent as evenly as they are routed."""
    ranks, rank, group = dist.get_world_size(), dist.get_rank(), dist.group.WORLD
    each = EXPERTS // ranks

    def in_turn(module: nn.Module, args: Any, output: tuple[Tensor, Tensor]) -> None:
        output[1].data.view(-1).copy_(torch.arange(output[1].numel()) % EXPERTS)

    def transposed(rows: Tensor, inner: int) -> Tensor:
        groups = rows.split(len(rows) // EXPERTS)
        return (
            torch.cat([groups[at] for first in range(inner) for at in range(first, EXPERTS, inner)])
            if each > 1
            else rows
        )

    def exchanged(original: Callable[..., Tensor], rows: Tensor, counts: Tensor) -> Tensor:
        parts, of_expert = [len(rows) // ranks] * ranks, ranks * len(rows) // EXPERTS
        send = partial(
            functional.all_to_all_single_autograd, output_split_sizes=parts, input_split_sizes=parts, group=group
        )
        made = original(transposed(send(rows), each), counts.new_full((each,), of_expert))
        made = transposed(made, ranks)
        return send(made)

    alone, every = init_device_mesh("cpu", (1, ranks), mesh_dim_names=("fsdp", "ep")), init_device_mesh("cpu", (ranks,))
    for block in net.blocks:
        block.gate.register_forward_hook(in_turn)
        experts = block.experts
        for name, weight in [*experts.named_parameters()]:
            setattr(experts, name, nn.Parameter(weight.detach()[rank * each : (rank + 1) * each].clone()))
        experts.forward = partial(exchanged, experts.forward)
        fully_shard(experts, mesh=alone["fsdp"])
        fully_shard(block, mesh=every)
    return summing(fully_shard(net, mesh=every))


# -- stages ----------------------------------------------------------------------------------------------------------------


class LanguageStage(nn.Module):
    """A part of the layers of the decoder, with what is before the first one and after the last one."""

    def __init__(self, net: Language, number: int, stages: int) -> None:
        super().__init__()
        self.mesh: Any = None  # of ranks that have parts of the sequence
        each = len(net.layers) // stages
        self.layers = net.layers[number * each : (number + 1) * each]
        if number == 0:
            self.tok_embeddings = net.tok_embeddings
        if number == stages - 1:
            self.norm, self.lm_head = net.norm, net.lm_head

    def forward(self, x: Tensor | None = None, *, tokens: Tensor | None = None) -> Tensor:
        if hasattr(self, "tok_embeddings"):
            x = self.tok_embeddings(tokens)
        elif self.mesh is not None:
            x = DTensor.from_local(x, self.mesh, [Shard(1)], run_check=False)
        for layer in self.layers:
            x = layer(x)
        if hasattr(self, "lm_head"):
            return nn.functional.cross_entropy(self.lm_head(self.norm(x)).flatten(0, 1), tokens.flatten())
        return x if self.mesh is None else x.to_local()


class Pipelined(nn.Module):
    """The stages of this rank, whose call is a step of their schedule."""

    def __init__(
        self, net: Language, schedule: str, *, fsdp: int = 1, tp: int = 1, per_rank: int = 1, sequence: bool = False
    ) -> None:
        super().__init__()
        self.sequence = sequence
        ranks = dist.get_world_size() // (fsdp * tp)
        mesh = init_device_mesh("cpu", (ranks, fsdp, tp), mesh_dim_names=("pp", "fsdp", "tp"))
        numbers = range(mesh.get_local_rank("pp"), ranks * per_rank, ranks)
        self.ends = not {0, ranks * per_rank - 1}.isdisjoint(numbers)
        self.stages = [self._stage(net, number, ranks * per_rank, mesh) for number in numbers]
        self.parts = nn.ModuleList(stage.submod for stage in self.stages)
        made = schedules.get_schedule_class(schedule)
        options = {"loss_fn": lambda loss, _: loss}
        self.schedule = made(self.stages if per_rank > 1 else self.stages[0], MICROBATCHES, **options)

    def _stage(self, net: Language, number: int, stages: int, mesh: Any) -> PipelineStage:
        module, tp = LanguageStage(net, number, stages), mesh["tp"]
        if tp.size() > 1:
            tensor_parallel(module, tp, sequence=self.sequence)
        module.mesh = tp if self.sequence else None
        for each in (*module.layers, module) if mesh["fsdp"].size() > 1 else ():
            fully_shard(each, mesh=mesh["fsdp"], reshard_after_forward=False)
        length = PARTS.shape[1] // (tp.size() if self.sequence else 1)
        passed = torch.empty(len(PARTS) // MICROBATCHES, length, WIDTH, requires_grad=True)
        ends = () if number == 0 else passed, torch.empty(()) if number == stages - 1 else passed
        return PipelineStage(summing(module), number, stages, torch.device("cpu"), *ends, group=mesh.get_group("pp"))

    def given(self, tokens: Tensor) -> list[Tensor]:
        """What is there before a step: where what other stages send is received, and the tokens, if a stage reads them."""
        infos = [
            each for stage in self.stages for each in (*stage.args_recv_info.values(), *stage.grad_recv_info.values())
        ]
        received = [info.buffer for found in infos for info in found if info.buffer is not None]
        return [*received, *([tokens] if self.ends else [])]

    def forward(self, tokens: Tensor) -> None:
        given = {"tokens": tokens} if self.ends else {}
        self.schedule.step(**given, target=torch.zeros(MICROBATCHES, 0), return_outputs=False)


MICROBATCHES = 8
PARTS = torch.zeros(MICROBATCHES, 32, dtype=torch.long)


# -- layouts ---------------------------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """A model that real ranks spread by hand, and the options with which a count does."""

    model: Callable[[], nn.Module]
    spread: Callable[[nn.Module], nn.Module]
    mesh: str  # with the number of ranks
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    inputs: Callable[[Any], AbstractContextManager[Any]] = nullcontext  # of a rank
    given: Any = TOKENS  # to all
    least: int = 2  # ranks
    most: int = 8


LAYOUTS: dict[str, Layout] = {
    "tp": Layout(Language, tensor_parallel, "tp={ranks}"),
    "tp, sequence": Layout(
        Language, partial(tensor_parallel, sequence=True), "tp={ranks}", {"sequence_parallel": True}
    ),
    "tp, loss": Layout(
        Language, partial(tensor_parallel, loss=True), "tp={ranks}", {"loss_parallel": True}, vocabulary_in_parts
    ),
    "tp, sequence, loss": Layout(
        Language, partial(tensor_parallel, sequence=True, loss=True), "tp={ranks}",
        {"sequence_parallel": True, "loss_parallel": True}, vocabulary_in_parts,
    ),
    "cp": Layout(Language, nn.parallel.DistributedDataParallel, "cp={ranks}", {}, partial(sequence_in_parts, "allgather")),
    "cp, ring": Layout(
        Language, nn.parallel.DistributedDataParallel, "cp={ranks}", {"ring": True}, partial(sequence_in_parts, "alltoall")
    ),
    "fsdp, tp, sequence, loss": Layout(
        Language, sharded_too, "fsdp={half},tp=2", {"sequence_parallel": True, "loss_parallel": True}, vocabulary_in_parts,
        least=4,
    ),
    "fsdp, cp": Layout(
        Language, fully_sharded_layers, "fsdp={half},cp=2", inputs=partial(sequence_in_parts, "allgather", cp=2)
    ),
    "ep by hand": Layout(Mixture, sent_by_hand, "fsdp=1,ep={ranks}"),
    **{
        f"pp, {name}": Layout(
            partial(Language, 8), partial(Pipelined, schedule=schedule, per_rank=per_rank), "pp={ranks}",
            {"schedule": name, "microbatches": MICROBATCHES}, given=PARTS, most=4,
        )
        for name, schedule, per_rank in (("1f1b", "1F1B", 1), ("gpipe", "GPipe", 1), ("interleaved-1f1b", "Interleaved1F1B", 2))
    },
    "pp, fsdp": Layout(
        partial(Language, 4), partial(Pipelined, schedule="1F1B", fsdp=2), "pp={half},fsdp=2", {"microbatches": MICROBATCHES},
        given=PARTS, least=4, most=4,
    ),
    **{
        f"pp, {name}": Layout(
            partial(Language, 4), partial(Pipelined, schedule="1F1B", tp=2, sequence=sequence), "pp={half},tp=2",
            {"microbatches": MICROBATCHES, "sequence_parallel": sequence}, given=PARTS, least=4, most=4,
        )
        for name, sequence in (("tp", False), ("tp, sequence", True))
    },
}  # fmt: skip


if find_spec("transformers") is not None:
    LAYOUTS["ep"] = Layout(mixtral, expert_parallel, "fsdp=1,ep={ranks}", given=LABELLED)
    LAYOUTS["fsdp, ep"] = Layout(mixtral, partial(expert_parallel, ep=2), "fsdp={half},ep=2", given=LABELLED)


def measured(model: nn.Module, x: Any, *, accumulates: bool = False) -> tuple[int, list[Sent]]:
    """The least peak of some steps, and what was sent in the last; DistributedDataParallel makes new buckets after the first.

    Threads of gloo hold what they have sent for a moment longer, in some steps.
    """
    peaks = []
    for _ in range(4):
        if not accumulates:
            model.zero_grad()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        given = model.given(x) if isinstance(model, Pipelined) else x
        with RankRun([*model.parameters()], grads, [*model.buffers()], given) as run:
            result = model(**x) if isinstance(x, dict) else model(x)
            loss = None if result is None else result["loss"]
            del result  # with logits, which are not needed any more
            if loss is not None:
                loss.backward()
        peaks.append(run.peak)
    return min(peaks[1:]), run.sent


def counted(model: nn.Module, x: Any, *, accumulates: bool = False, **options: Any) -> tuple[int, list[Sent]]:
    """The same of one step, or of its later passes, without running it.

    Numbers that PyTorch makes of ones of Python are there for a moment, and all along in a count: they are no part of this.
    """
    report = opcost.count(model, x, backward=True, real=False, accumulate=2 if accumulates else 1, **options)
    order = report.order
    rows = (
        report.rows if order is None else [row for part in order.runs for row in report.rows[slice(*order.parts[part])]]
    )
    sent = [
        (
            row.op.raw,
            max(sum(spec.nbytes for spec in side) for side in (row.ins, row.outs)),
            row.op.attrs["group"],
            row.op.attrs.get("peer"),
        )
        for row in rows
        if row.op.kind == "collective" and row.op.attrs["fn"] != "wait"
    ]
    numbers = sum(row.outs[0].nbytes for row in report.rows if row.op.raw == "aten::lift_fresh")
    return report.known_memory().peak_bytes - numbers, sent


def run_rank(rank: int, ranks: int, folder: str) -> None:
    """Run and count every model, and write what was found to a file."""
    declare_torchvision_operators()  # transformers looks at it
    torch.set_num_threads(1)
    where = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks, timeout=LIMIT)
    found = {}
    for name, make in MODELS.items():
        accumulates = name in ACCUMULATING
        found[name] = {
            "counted": counted(make(), INPUT, accumulates=accumulates),
            "measured": measured(make(), INPUT, accumulates=accumulates),
        }
    for name, layout in LAYOUTS.items():
        if not layout.least <= ranks <= layout.most:
            continue
        with layout.inputs(layout.given) as own:
            found[name] = {"measured": measured(layout.spread(layout.model()), own)}
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()
