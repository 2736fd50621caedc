"""The part of Markdown that experiments write, as HTML: headings, paragraphs, tables, lists, code.

Everything else of a text is escaped, so that a message of a peer never becomes markup.
"""

import html
import re

CODE = re.compile(r"`([^`]*)`")
BOLD = re.compile(r"\*\*([^*]+)\*\*")


def inline(text):
    text = html.escape(text, quote=False)
    parts = CODE.split(text)  # odd ones are code
    for index, part in enumerate(parts):
        parts[index] = f"<code>{part}</code>" if index % 2 else BOLD.sub(r"<b>\1</b>", part)
    return "".join(parts)


def cells(line):
    """Returns the cells of a table's line; “\\|” does not end one."""
    return [cell.strip().replace("\\|", "|")
            for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def table(lines):
    """Returns an HTML table; the second line says where to align to the right."""
    right = [cell.endswith(":") for cell in cells(lines[1])]

    def row(line, tag):
        found = cells(line)
        return "<tr>" + "".join(
            f"<{tag}{' class=r' if index < len(right) and right[index] else ''}>{inline(cell)}"
            f"</{tag}>" for index, cell in enumerate(found)) + "</tr>"

    return "<table>" + row(lines[0], "th") + "".join(row(line, "td") for line in lines[2:]) + \
        "</table>"


def kind_of(line):
    for kind, start in (("heading", "#"), ("table", "|"), ("list", "- "), ("fence", "```")):
        if line.startswith(start):
            return kind
    return "text" if line.strip() else "blank"


def to_html(text, level=3):
    """Returns the text as HTML; its first rank of headings becomes <h{level}>."""
    out, lines, index = [], text.splitlines(), 0
    while index < len(lines):
        kind, start = kind_of(lines[index]), index
        index += 1
        if kind == "fence":
            while index < len(lines) and kind_of(lines[index]) != "fence":
                index += 1
            out.append("<pre>" + html.escape("\n".join(lines[start + 1:index])) + "</pre>")
            index += 1
            continue
        while kind not in ("heading", "blank") and index < len(lines) and (
                kind_of(lines[index]) == kind):
            index += 1
        block = lines[start:index]
        if kind == "heading":
            marks = len(block[0]) - len(block[0].lstrip("#"))
            rank = min(6, level + marks - 1)
            out.append(f"<h{rank}>{inline(block[0].lstrip('#').strip())}</h{rank}>")
        elif kind == "table" and len(block) > 1:
            out.append(table(block))
        elif kind == "list":
            out.append("<ul>" + "".join(f"<li>{inline(line[2:])}</li>" for line in block) + "</ul>")
        elif kind != "blank":
            out.append(f"<p>{inline(' '.join(block))}</p>")
    return "\n".join(out)
