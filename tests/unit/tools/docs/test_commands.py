"""Tests of the generated blocks of commands."""

from tools.docs.commands import command_block


def test_flags_of_another_commands_table_are_a_link_to_it() -> None:
    plan = command_block("rolecall plan")
    assert "As in [`rolecall run`](#rolecall-run): `--watches-file`, `--kubeconfig`" in plan
    assert "| `--watches-file FILE` |" not in plan
    assert "| `--watches-file FILE` |" in command_block("rolecall run")


def test_flag_with_another_meaning_stays_in_its_table() -> None:
    validate = command_block("rolecall validate")
    assert "| `--watches-file FILE` | `watches.yaml` | the watches file to check |" in validate
