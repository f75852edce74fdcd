import pytest
from tools.docs.metrics import families, metrics_block

from rolecall.runner.serving.metrics import OperatorMetrics


def test_a_row_has_name_type_labels_and_help() -> None:
    [row] = [line for line in metrics_block("operator").splitlines() if "rest_client_requests" in line]
    assert row.startswith("| `rest_client_requests_total` | counter | `code`, `method`, `host` | requests of ")


def test_each_metric_is_in_one_of_the_tables() -> None:
    rows = [line.split("`")[1] for name in ("operator", "controllers") for line in metrics_block(name).splitlines()[2:]]
    assert sorted(rows) == sorted(family.name for family in families())


def test_the_names_are_those_that_are_served() -> None:
    served = {
        line.split()[2] for line in OperatorMetrics("").render().decode().splitlines() if line.startswith("# TYPE")
    }
    told = {family.name for family in families()}
    assert {name for name in served if not name.startswith("process_")} == told


def test_every_metric_says_what_it_is() -> None:
    assert [family.name for family in families() if not family.text] == []


def test_a_table_that_is_not_there_is_told_of() -> None:
    with pytest.raises(LookupError, match="expected one of operator, controllers"):
        metrics_block("songs")
