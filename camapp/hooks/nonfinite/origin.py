"""Goes back from a symptom, along the flow of numbers, to the operation or the tensor that it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from camapp.hooks.nonfinite.record import Operation, Read, Recording

# Operations that a mask of -Inf from outside is meant for. Any other that takes one makes nonsense of it.
_TAKE_MASKS = {
    "add", "add_", "sub", "sub_", "where", "masked_fill", "masked_fill_", "index_put", "index_put_", "copy_",
    "_to_copy", "clone", "cat", "stack", "repeat", "index", "index_select", "gather", "maximum", "minimum",
    "triu", "tril", "baddbmm", "_softmax", "_safe_softmax", "_log_softmax", "_masked_softmax",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math", "_transformer_encoder_layer_fwd", "_native_multi_head_attention",
}  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Where what is not finite came from.

    Args:
        operation: the operation that made it, or the first that took it from outside; None where none did.
        source: the tensor from outside; None where the operation made it out of finite numbers.
        mask: the operation, or the tensor from outside, that the -Inf came from which the operation made it out of,
            where that was written on purpose.
    """

    operation: Operation | None
    source: Read | None = None
    mask: Operation | Read | None = None


def find_origin(recording: Recording) -> Origin | None:
    """The earliest place that explains the symptoms of a step; None where there are none.

    Infinities that are written as masks (-Inf by a number in the call, or from a tensor that is added or filled in)
    and what passes them on are innocent, unless the model returns them or nothing else explains the symptoms. What
    makes NaN or +Inf out of them is not.
    """
    if not recording.symptoms:
        return None
    innocent = _innocent(recording, frozenset())
    returned = frozenset(_behind(recording, recording.handed_out, innocent))
    if returned:
        innocent = _innocent(recording, returned)
    return _earliest(recording, innocent) or _earliest(recording, None)


def _innocent(recording: Recording, guilty: frozenset[int]) -> frozenset[int]:
    """The operations whose results are not finite by masks alone."""
    innocent: set[int] = set()
    for operation in recording.operations:
        results = [recording.counts[read.measured] for read in operation.results]
        bad = [counts for counts in results if counts.bad]
        if operation.number in guilty or not bad or not all(counts.only_minus for counts in bad):
            continue
        taken = recording.bad(operation.reads)
        if all(_excused(recording, read, operation, innocent) for read in taken) and (taken or operation.says_minus):
            innocent.add(operation.number)
    return frozenset(innocent)


def _excused(recording: Recording, read: Read, operation: Operation, innocent: set[int] | frozenset[int]) -> bool:
    """Whether what ``operation`` took is not finite by a mask alone."""
    if not recording.counts[read.measured].only_minus:
        return False
    writers = _bad_writers(recording, read)
    if writers:
        return all(writer in innocent for writer in writers)
    known = recording.known.get(read.memory)
    return (known is None or known.what != "parameter") and operation.short_name in _TAKE_MASKS


def _behind(recording: Recording, reads: list[Read], among: frozenset[int]) -> set[int]:
    """The operations of some that the non-finite elements of ``reads`` come through."""
    found: set[int] = set()
    waiting = [writer for read in recording.bad(reads) for writer in _bad_writers(recording, read)]
    while waiting:
        number = waiting.pop()
        if number in found or number not in among:
            continue
        found.add(number)
        for read in recording.bad(recording.operations[number].reads):
            waiting.extend(_bad_writers(recording, read))
    return found


def _earliest(recording: Recording, innocent: frozenset[int] | None) -> Origin | None:
    """The earliest origin behind the symptoms; None for ``innocent`` excuses nothing."""
    origins: list[Origin] = []
    seen: set[int] = set()
    waiting: list[int] = []
    for read in recording.symptoms:
        writers = _bad_writers(recording, read)
        waiting.extend(writers)
        if not writers and innocent is None:
            origins.append(Origin(None, read))
    while waiting:
        number = waiting.pop()
        if number in seen or (innocent is not None and number in innocent):
            continue
        seen.add(number)
        operation = recording.operations[number]
        taken = recording.bad(operation.reads)
        suspect = [read for read in taken if innocent is None or not _excused(recording, read, operation, innocent)]
        if not suspect:
            origins.append(Origin(operation, mask=_mask_behind(recording, taken[0]) if taken else None))
        for read in suspect:
            writers = _bad_writers(recording, read)
            waiting.extend(writers)
            if not writers:
                origins.append(Origin(operation, source=read))
    return min(origins, key=lambda origin: -1 if origin.operation is None else origin.operation.number, default=None)


def _mask_behind(recording: Recording, read: Read) -> Operation | Read:
    """The operation that wrote the -Inf in ``read``, or the tensor from outside that brought it."""
    while True:
        writers = _bad_writers(recording, read)
        if not writers:
            return read
        operation = recording.operations[writers[0]]
        taken = recording.bad(operation.reads)
        if not taken:
            return operation
        read = taken[0]


def _bad_writers(recording: Recording, read: Read) -> list[int]:
    """The operations whose non-finite results lie in the memory of ``read``."""
    return [writer for writer in read.writers if recording.bad(recording.operations[writer].results)]
