"""The commands of a page of the documentation, to be run as they stand there."""

from __future__ import annotations

import re

from tests.support.checkout import ROOT


def commands_of(page: str, part: str = "") -> list[list[str]]:
    """The words behind ``tierlog`` of each line of a code block that is a command, in the page's order.

    Args:
        page: Path below the checkout.
        part: Heading of the part that they are taken from, by its beginning; by default the whole page.
    """
    text = (ROOT / page).read_text()
    if part:
        text = re.split(r"^## ", text.partition(f"\n## {part}")[2], maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.split() for block in blocks for line in block.splitlines()]
    return [line[1:] for line in lines if line[:1] == ["tierlog"]]
