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


def test_the_comparison_gives_the_figures_of_the_benchmark() -> None:
    benchmark = (PROJECT / "bench/README.md").read_text()
    measured = "podscaler: unchanged reconcile, one object, from trigger to status written (s)"
    rows = [line.split("|") for line in benchmark.splitlines() if line.startswith(f"| {measured}")]
    values = [re.findall(r"[\d.]+", cell)[0] for row in rows for cell in row[4:7] if re.match(r" [\d.]", cell)]
    assert {"0.151", "0.0141", "0.167", "1.38"} <= set(values)
    assert all(f" {shown} s " in PAGE.read_text() for shown in ("0.15 to 0.17", "1.38", "0.014"))
