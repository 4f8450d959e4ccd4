"""An explanation as text and as a Mermaid diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Explanation = Mapping[str, Any]

_DETAIL_CHARACTERS: Final = 80
"""Longer details make a diagram unreadable."""


def as_text(explanation: Explanation, *, sql: bool = True) -> str:
    """An explanation to read on a terminal.

    Args:
        explanation: What `explain` or `analyze` gave.
        sql: Whether to show query and statements.
    """
    parts = [_verdict(explanation)]
    if sql:
        parts.append("Query:\n" + _indented(explanation["query"]))
    parts.append("Plan:\n" + _tree(explanation["plan"]))
    title = "Maintained by" if explanation["differential"] else "Recomputed"
    parts.append(f"{title}:\n" + _tree(explanation["operators"], _measured_operators(explanation)))
    parts.append("Rules:\n" + "\n".join(f"  {name}: {text}" for name, text in explanation["rules"].items()))
    parts.append("Tables read:\n" + "\n".join(_input(item) for item in explanation["inputs"]))
    parts.append("State tables:" + ("\n" + _states(explanation) if explanation["state_tables"] else " none"))
    if explanation["notes"]:
        parts.append("Notes:\n" + "\n".join(f"  {note}" for note in explanation["notes"]))
    if "analysis" in explanation:
        parts.append(analysis_text(explanation["analysis"], sql=sql))
    elif sql:
        parts.append(
            "Statements when every input has changed:\n\n" + "\n\n".join(map(_statement, explanation["steps"]))
        )
    return "\n\n".join(parts)


def analysis_text(analysis: Explanation, *, sql: bool = True) -> str:
    """What a refresh would do now."""
    lines = [f"A refresh to cut {analysis['cut']} now: {analysis['strategy']} ({analysis['reason']})"]
    for item in analysis["inputs"]:
        since = "its beginning" if item["since"] is None else f"snapshot {item['since']}"
        lines.append(f"  reads {item['table']} from {since} to {item['until']}")
    lines.append(f"  {analysis['rows_read']} rows in, {analysis['spark_jobs']} Spark jobs, {analysis['seconds']:.2f} s")
    if analysis["steps"]:
        width = max(len(step["target"]) for step in analysis["steps"])
        rules = max(len(step["rule"]) for step in analysis["steps"])
        lines += ["", "  " + f"{'step':<{width}}  {'rule':<{rules}}  {'rows':>10}  {'seconds':>8}"]
        lines += [
            f"  {step['target']:<{width}}  {step['rule']:<{rules}}  {step['rows']:>10}  {step['seconds']:>8.3f}"
            for step in analysis["steps"]
        ]
    lines += [""] if analysis["changes"] else []
    for change in analysis["changes"]:
        lines.append(f"  {change['table']}: +{change['rows_inserted']} -{change['rows_deleted']} rows")
    if analysis["source_changes_waiting"]:
        lines.append("  Changes that still wait in the buffers of the sources are not counted.")
    statements = [step for step in analysis["steps"] if step["sql"]] if sql else []
    return "\n".join(lines) + "".join(f"\n\n{_statement(step)}" for step in statements)


def as_mermaid(explanation: Explanation) -> str:
    """The operators as a Mermaid flowchart, inputs below; the steps of a refresh follow as a second group."""
    lines = ["flowchart BT", f"  subgraph operators[{_quoted(str(explanation['stream_table']))}]"]
    done_by_operator = _measured_operators(explanation)
    for item in explanation["operators"]:
        done = f"<br/>{done_by_operator[item['number']]}" if item["number"] in done_by_operator else ""
        lines.append(f"    o{item['number']}[{_quoted(_label(item) + done)}]")
        if item["parent"] is not None:
            lines.append(f"    o{item['number']} --> o{item['parent']}")
    lines.append("  end")
    steps = explanation["steps"]
    measured = {step["target"]: step for step in explanation.get("analysis", {}).get("steps", ())}
    if measured:
        steps = [step for step in steps if step["target"] in measured]
    targets = {step["target"]: place for place, step in enumerate(steps)}
    if steps:
        lines.append(f"  subgraph steps[{_quoted('steps of a refresh')}]")
        for place, step in enumerate(steps):
            found = measured.get(step["target"])
            done = f"<br/>{found['rows']} rows, {found['seconds']:.3f} s" if found else ""
            lines.append(f"    s{place}[{_quoted(step['target'] + '<br/>' + step['rule'] + done)}]")
            sources = dict.fromkeys(read.rpartition("@")[0] for read in step["reads"])
            lines += [f"    s{targets[name]} --> s{place}" for name in sources if targets.get(name, place) != place]
        lines.append("  end")
    return "\n".join(lines)


def _verdict(explanation: Explanation) -> str:
    name = explanation["stream_table"]
    if explanation["refresh_mode"] == "full" and not explanation["reasons"]:
        return f"{name} is recomputed in full, because refresh_mode is full; every operator has a delta rule."
    if explanation["differential"]:
        return f"{name} is kept up to date from what changed: every operator has a delta rule."
    lines = [f"{name} is recomputed in full:"]
    for reason in explanation["reasons"]:
        lines.append(f"  {reason['detail']} ({reason['code']}). {reason['why']} {reason['advice']}")
    return "\n".join(lines)


def _measured_operators(explanation: Explanation) -> dict[int, str]:
    """Rows and time by number of the operator; empty without an analysis."""
    found = explanation.get("analysis", {}).get("operators", ())
    return {item["number"]: f"{item['rows']} rows, {item['seconds']:.3f} s" for item in found}


def _tree(items: Sequence[Explanation], measured: Mapping[int, str] | None = None) -> str:
    """One line per operator, below its reader; with its rule and what was measured unless `measured` is None."""
    depth: dict[int, int] = {}
    lines: list[str] = []
    for item in items:
        own = depth[item["number"]] = 0 if item["parent"] is None else depth[item["parent"]] + 1
        text = f"{item['operator']} {item['detail']}".rstrip()
        if measured is not None:
            text += f"  [{item['rule']}{', kept in ' + item['state'] if item['state'] else ''}]"
            text += f"  {measured[item['number']]}" if item["number"] in measured else ""
        lines.append("  " * (own + 1) + text)
    return "\n".join(lines)


def _input(item: Explanation) -> str:
    return f"  {item['table']} ({', '.join(item['columns'])})"


def _states(explanation: Explanation) -> str:
    return "\n".join(
        f"  {item['state']}: {item['table']} ({', '.join(column['name'] for column in item['columns'])})"
        for item in explanation["state_tables"]
    )


def _statement(step: Explanation) -> str:
    return f"  -- {step['target']} ({step['rule']})\n{_indented(step['sql'])}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


def _label(item: Explanation) -> str:
    detail = item["detail"]
    if len(detail) > _DETAIL_CHARACTERS:
        detail = detail[: _DETAIL_CHARACTERS - 3] + "..."
    kept = f"<br/>kept in {item['state']}" if item["state"] else ""
    return f"{item['operator']} {_plain(detail)}<br/>{item['rule']}{kept}"


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    """A Mermaid label; double quotes end it, so they are written as an entity."""
    return '"' + text.replace('"', "#quot;").replace("\n", " ") + '"'
