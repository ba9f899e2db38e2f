"""How one declaration of a request serves both flavours of the client, the blocking one and the one for asyncio.

Invariant: a flavour adds only how steps are carried out; name, parameters, types and documentation of a request stand once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from .wire import Steps

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Blocking:
    """A client for code without an event loop."""

    def _run(self, steps: Steps[_T]) -> _T:
        raise NotImplementedError


class Awaiting:
    """A client for asyncio."""

    async def _run(self, steps: Steps[_T]) -> _T:
        raise NotImplementedError


class Call(Generic[_P, _T]):
    """Decorates a method that says which steps to take; whoever calls it has them taken, and gets their result.

    Args:
        steps: The method: its arguments are the caller's.
    """

    def __init__(self, steps: Callable[Concatenate[Any, _P], Steps[_T]]) -> None:
        @functools.wraps(steps)
        def blocking(client: Blocking, *args: _P.args, **given: _P.kwargs) -> _T:
            return client._run(steps(client, *args, **given))  # noqa: SLF001  # a method of the client

        @functools.wraps(steps)
        async def awaiting(client: Awaiting, *args: _P.args, **given: _P.kwargs) -> _T:
            return await client._run(steps(client, *args, **given))  # noqa: SLF001  # a method of the client

        shown = inspect.signature(steps)  # for help(): whoever calls it gets the result, not the steps
        result = str(shown.return_annotation).removeprefix("Steps[").removesuffix("]")
        for function in (blocking, awaiting):
            vars(function)["__signature__"] = shown.replace(return_annotation=result)
        self.__doc__ = steps.__doc__
        self._blocking = blocking
        self._awaiting = awaiting

    @overload
    def __get__(self, client: Blocking, owner: type) -> Callable[_P, _T]: ...

    @overload
    def __get__(self, client: Awaiting, owner: type) -> Callable[_P, Coroutine[Any, Any, _T]]: ...

    @overload
    def __get__(self, client: None, owner: type) -> Callable[..., Any]: ...

    def __get__(self, client: Blocking | Awaiting | None, owner: type) -> Callable[..., Any]:
        """The method of a client, or of a class of clients."""
        function: Callable[..., Any] = self._awaiting if issubclass(owner, Awaiting) else self._blocking
        return function if client is None else MethodType(function, client)
