"""The one console that commands draw tables with: its colours are its own, its content is made printable first."""

import sys
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from harness.hidden import masked
from harness.screen import Styled, printable


class SafeConsole(Console):
    """A console that shows no control character of what it is given."""

    def render_str(self, text: str, **given: Any) -> Text:
        """As the library's, of what is printable: this is also what a column's width is measured by."""
        return super().render_str(_clean(text), **given)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Text is cleaned before it is laid out, and whatever else comes out of a renderable after."""
        if isinstance(renderable, Text) and (clean := _clean(renderable.plain)) != renderable.plain:
            renderable = Text(clean, style=renderable.style, justify=renderable.justify, overflow=renderable.overflow)
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=_clean(segment.text))


def _clean(text: str) -> str:
    return printable(masked(text))


def console(*, file: TextIO | None = None, stderr: bool = False, **given: Any) -> Console:
    """A console on standard output (or error, or ``file``) that shows no control character of its content."""
    stream = file if file is not None else sys.stderr if stderr else sys.stdout
    # Brackets and colons of a text are text: a stranger's "[/]" would else be markup, and a wrong one an exception.
    return SafeConsole(file=Styled(stream), markup=False, emoji=False, **given)  # type: ignore[arg-type]
