"""Every operation has exactly one answer, and the method that answers it takes its request and returns its answer."""

from __future__ import annotations

from collections import Counter
from inspect import ismethod
from pathlib import Path
from typing import get_type_hints

from support.stack import running_stack

from crew_journal.schemas.operations import ALL
from crew_journal.services.runtime.composition import handlers


async def test_every_operation_has_exactly_one_answer_with_its_types(tmp_path: Path) -> None:
    async with running_stack(tmp_path) as stack:
        answers = list(handlers(stack.shared))
    assert Counter(operation.name for operation, _ in answers) == Counter(operation.name for operation in ALL)
    methods = [(operation, handler) for operation, handler in answers if ismethod(handler)]
    assert len(methods) > len(ALL) / 2
    for operation, method in methods:
        hints = get_type_hints(method)
        _caller, asked = list(hints.values())[:2]
        assert issubclass(operation.request, asked), operation.name
        assert issubclass(hints["return"], operation.answer), operation.name
