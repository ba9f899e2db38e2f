"""Settings as commands take them: from the environment and from options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from ...schemas.settings import Settings


def settings_from(**given: Any) -> Settings:
    """Settings of the environment, overridden by what was given.

    Raises:
        typer.BadParameter: If a value is not one of its kind.
    """
    from pydantic import ValidationError

    from ...schemas.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "setting"
        raise typer.BadParameter(
            first["msg"].removeprefix("Value error, "), param_hint=f"--{name.replace('_', '-')}"
        ) from None
