"""The comparison with other projects says where it has what it says."""

import re

from tests.unit.docs.pages import PROJECT

PAGE = PROJECT / "docs/why-rolecall.md"
UNKNOWN = {"not measured"}


def test_each_cell_of_the_comparison_names_its_source() -> None:
    tables = PAGE.read_text().partition("## Side by side")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in tables.splitlines() if line.startswith("| ")]
    body = [row for row in rows if row[0].strip() != "subject"]
    assert len(body) > 5
    assert [row[0] for row in body if len(row) != len(rows[0])] == []
    cells = [cell.strip() for row in body for cell in row[1:]]
    assert [cell for cell in cells if cell not in UNKNOWN and not re.search(r"\]\([^)]+\)", cell)] == []


def test_pages_quote_the_measured_durations() -> None:
    """The range of a contender is that of the medians in the tables of the benchmark, rounded."""
    ranges = {name: _range(values) for name, values in _durations().items()}
    assert f"| {ranges['warm']} s ([figures]" in PAGE.read_text()
    assert f"| {ranges['Operator SDK']} s with the same roles" in PAGE.read_text()
    assert f"| {ranges['kopf']} s ([figures]" in PAGE.read_text()
    assert f"with the Operator SDK in {ranges['Operator SDK']} s" in (PROJECT / "README.md").read_text()


def _durations() -> dict[str, list[float]]:
    """Return the medians of an unchanged reconcile by contender, from the tables of the benchmark's results."""
    found: dict[str, list[float]] = {}
    names: list[str] = []
    results = (PROJECT / "bench/README.md").read_text().partition("## Results")[2]
    for line in results.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "measure":
            names = cells
        elif cells[0].endswith("unchanged reconcile, one object, from trigger to status written (s)"):
            for name, cell in zip(names, cells, strict=True):
                if name in ("warm", "Operator SDK", "kopf"):
                    found.setdefault(name, []).append(float(cell.split()[0]))
    return found


def _range(values: list[float]) -> str:
    ends = list(dict.fromkeys(f"{value:.2g}" for value in (min(values), max(values))))
    return " to ".join(ends)
